"""The protocols by which services reach stores, buses, clocks and runners. A port has at most eight methods."""
