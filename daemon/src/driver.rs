//! Owns the one way in which a loop carries out what a machine in core decides: input → effects →
//! performed, with one queue. Driven by the loops of `mcp` and `gateway`; the supervisor
//! and a run have queues of their own, since one of their effects gives several inputs. Never calls back into
//! the machine while an effect is performed.

use std::collections::VecDeque;

/// A machine of core together with what performs its effects.
pub(crate) trait Driver {
    /// What happened outside.
    type Input;
    /// What must be done.
    type Effect;

    /// Lets the machine decide.
    fn handle(&mut self, input: Self::Input) -> Vec<Self::Effect>;

    /// Performs one effect. Returns what the machine has to know of it at once.
    async fn perform(&mut self, effect: Self::Effect) -> Option<Self::Input>;

    /// Hands an input to the machine and performs the effects in order. An input that comes of
    /// performing waits until those before it are done.
    async fn input(&mut self, input: Self::Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for effect in self.handle(input) {
                inputs.extend(self.perform(effect).await);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits numbers into halves, down to one.
    #[derive(Default)]
    struct Halves(Vec<u32>);

    impl Driver for Halves {
        type Input = u32;
        type Effect = u32;

        fn handle(&mut self, input: u32) -> Vec<u32> {
            vec![input, input + 100]
        }

        async fn perform(&mut self, effect: u32) -> Option<u32> {
            self.0.push(effect);
            Some(effect / 2).filter(|half| effect < 100 && *half > 0)
        }
    }

    #[tokio::test]
    async fn effects_of_one_input_are_performed_before_the_next_input() {
        let mut halves = Halves::default();
        halves.input(4).await;
        assert_eq!(halves.0, [4, 104, 2, 102, 1, 101]);
    }
}
