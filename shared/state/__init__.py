"""Fleet state: who reports, since when. In memory for one router, in Redis for many."""
