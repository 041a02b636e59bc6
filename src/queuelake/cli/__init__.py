"""The command line. Imports of what a command needs stand inside it, so that `--help` is quick."""
