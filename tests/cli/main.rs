//! The commands as a user runs them; one file for each.
