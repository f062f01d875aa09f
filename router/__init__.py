"""The policy router: classifies, decides, dispatches and accounts for each request."""
