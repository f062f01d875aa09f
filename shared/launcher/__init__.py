"""`isthmus up`: starts the tiers of one machine as child processes, keeps them running and ends all of them."""
