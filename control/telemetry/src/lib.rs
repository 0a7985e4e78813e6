//! Rates, histograms and captures for people and programs.
