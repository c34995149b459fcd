"""The Rt-tree family of LAPS: R-trees over the rectangles of boolean subscriptions whose nodes know tokens."""
