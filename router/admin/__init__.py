"""The admin API: what an operator sees and may change, for the console's pages and for the command line alike."""
