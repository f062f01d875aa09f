"""A fleet of devices over a day, decided on by the router's own policy code."""
