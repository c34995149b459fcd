"""The message window as an IR-tree, the message index of Skype."""

from dskype.bolts.window.irtree.irtree import IrTreeWindow

__all__ = ["IrTreeWindow"]
