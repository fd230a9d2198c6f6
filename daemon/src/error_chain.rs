//! Writes an error with all its causes as text. Used by the daemon's notices and by the command line.
//! Never repeats a cause: messages do not contain their source.

use std::error::Error;

/// The causes of an error, the nearest one first.
pub fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// An error and its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_is_named_once_and_in_order() {
        let disk = Layer("no space left", None);
        let write = Layer("cannot write `a`", Some(Box::new(disk)));
        let error = Layer("cannot save", Some(Box::new(write)));
        assert_eq!(chain(&error), "cannot save: cannot write `a`: no space left");
        assert_eq!(causes(&error).count(), 2);
        assert_eq!(chain(&Layer("alone", None)), "alone");
    }
}
