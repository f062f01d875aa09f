"""What a key may use: requests and tokens in a minute, and requests at the same time, over all routers."""
