//! The rules of the code base that no compiler knows.
