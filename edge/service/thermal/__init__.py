"""Heat and power: sensors, the filter over their readings, the ladder of levels, and the loop that joins them."""
