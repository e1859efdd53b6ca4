"""The command line: one module per subcommand, loaded only when it is asked for."""
