//! Processes that behave badly, under `afresh keep`.
