//! Level 0: the programs that run in the driver, and their maps.
