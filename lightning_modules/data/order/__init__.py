"""Which sequences a run is shown when, in what portions, under what noise."""
