"""Who may call this router: keys of the settings, and keys that were made while it runs."""
