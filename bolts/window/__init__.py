"""Message windows, which answer top-k queries exactly as of a past watermark."""

from dskype.bolts.window.base import WINDOWS
from dskype.bolts.window.baselines.irtree import IrTreeWindow
from dskype.bolts.window.chunks import ChunkWindow

WINDOWS["chunks"] = ChunkWindow
WINDOWS["irtree"] = IrTreeWindow
