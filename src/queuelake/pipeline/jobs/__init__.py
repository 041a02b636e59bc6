"""The jobs of `queuelake pipeline`. Each is a module with `Options` and `run(context, options)`."""
