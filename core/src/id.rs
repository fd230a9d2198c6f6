//! Owns the ids of services and instances: types, never bare numbers.

use std::fmt;

/// One service among those that a supervisor keeps, in the order of their definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// One instance among those that a service has had: 1, 2, 3…
///
/// Every report carries the generation it belongs to, so that a late one is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
