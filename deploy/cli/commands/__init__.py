"""One module for each command, with ``add_arguments(parser)`` and ``run(args)``; it is imported when the command is called."""
