"""Which element comes when: arithmetic on integers, and folds. Nothing in here touches data, threads or clocks."""
