//! The history of a register, judged by stateright's checker for linearizability.

use crate::judge::Violation;
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

/// Operations on one register, in the order in which they began and ended.
#[derive(Debug, Default)]
pub struct History {
    operations: Vec<RegisterOp<u64>>,
    events: Vec<(usize, Moment)>,
    /// What is known not to have been carried out.
    undone: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Moment {
    Begin,
    End(RegisterRet<u64>),
}

impl History {
    /// Notes that a write begins. Returns its number.
    pub fn begin_write(&mut self, value: u64) -> usize {
        self.begin(RegisterOp::Write(value))
    }

    /// Notes that a read begins. Returns its number.
    pub fn begin_read(&mut self) -> usize {
        self.begin(RegisterOp::Read)
    }

    fn begin(&mut self, operation: RegisterOp<u64>) -> usize {
        self.operations.push(operation);
        let number = self.operations.len() - 1;
        self.events.push((number, Moment::Begin));
        number
    }

    /// Notes that a write was acknowledged.
    pub fn wrote(&mut self, number: usize) {
        self.events.push((number, Moment::End(RegisterRet::WriteOk)));
    }

    /// Notes what a read has returned.
    pub fn read(&mut self, number: usize, value: u64) {
        self.events.push((number, Moment::End(RegisterRet::ReadOk(value))));
    }

    /// Notes that an operation was surely not carried out. One that never ends may have been.
    pub fn undone(&mut self, number: usize) {
        self.undone.push(number);
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Judges the history of a register that was 0 at first.
    ///
    /// # Errors
    /// No order of the operations explains it.
    pub fn judge(&self, what: &str) -> Result<(), Violation> {
        let mut tester = LinearizabilityTester::new(Register(0));
        for (number, moment) in &self.events {
            let operation = &self.operations[*number];
            let has_ended = self
                .events
                .iter()
                .any(|(other, moment)| other == number && matches!(moment, Moment::End(_)));
            let is_read = matches!(operation, RegisterOp::Read);
            // A read without an answer has no effect.
            if self.undone.contains(number) || is_read && !has_ended {
                continue;
            }
            let noted = match moment {
                Moment::Begin => tester.on_invoke(*number, operation.clone()).map(drop),
                Moment::End(result) => tester.on_return(*number, result.clone()).map(drop),
            };
            noted.expect("each operation begins and ends once, in a thread of its own");
        }
        if tester.is_consistent() {
            return Ok(());
        }
        let events = self.events.iter();
        let events = events.filter(|(number, _)| !self.undone.contains(number));
        let told: Vec<_> = events
            .map(|(number, moment)| match moment {
                Moment::Begin => format!("{number}: {:?}", self.operations[*number]),
                Moment::End(result) => format!("{number} -> {result:?}"),
            })
            .collect();
        Err(Violation(format!("{what} is not linearizable: {}", told.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_what_was_overwritten_is_not_linearizable() {
        let mut history = History::default();
        for value in [1, 2] {
            let write = history.begin_write(value);
            history.wrote(write);
        }
        let lost = history.begin_write(3);
        let read = history.begin_read();
        history.read(read, 2);
        assert_eq!(history.judge("a register"), Ok(()));
        let read = history.begin_read();
        history.read(read, 3);
        assert_eq!(history.judge("a register"), Ok(()), "it may have been written");
        history.undone(lost);
        assert!(history.judge("a register").is_err(), "it was not written");
    }
}
