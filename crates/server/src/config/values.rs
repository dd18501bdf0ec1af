//! The values of all parameters at one moment.

use cairn_resp::number::parse_i64;

use super::kind::Refusal;
use super::table::{PARAMETERS, find};
use crate::address::Address;

/// One value for each parameter, in the order of the table, as CONFIG GET shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Values(Vec<Vec<u8>>);

impl Default for Values {
    fn default() -> Self {
        let defaults = PARAMETERS.iter();
        Values(defaults.map(|parameter| parameter.default.into()).collect())
    }
}

impl Values {
    /// Where to listen.
    pub fn address(&self) -> Address {
        Address {
            bind: self.text("bind"),
            port: self.number("port") as u16,
            tls_port: self.number("tls-port") as u16,
        }
    }

    /// By the parameter's place in the table.
    pub fn at(&self, at: usize) -> &[u8] {
        &self.0[at]
    }

    /// Reads a new value for the parameter.
    pub fn set(&mut self, at: usize, text: &[u8]) -> Result<(), Refusal> {
        self.0[at] = PARAMETERS[at].kind.read(text, &self.0[at])?;
        Ok(())
    }

    /// Has the value of the parameter that those have.
    pub fn take_over(&mut self, at: usize, from: &Values) {
        self.0[at].clone_from(&from.0[at]);
    }

    /// Whether the parameter is a flag of the program, and has this value already: to ask for that is no change.
    pub fn is_as_asked(&self, at: usize, text: &[u8]) -> bool {
        let read = PARAMETERS[at].kind.read(text, &self.0[at]);
        PARAMETERS[at].help.is_some() && read.is_ok_and(|value| value == self.0[at])
    }

    /// By name, for the parameters that the program itself asks for.
    pub fn get(&self, name: &'static str) -> &[u8] {
        let at = find(name.as_bytes()).expect("the program asks for parameters of the table only");
        self.at(at)
    }

    pub fn text(&self, name: &'static str) -> String {
        String::from_utf8_lossy(self.get(name)).into_owned()
    }

    /// A number of the range that its kind allows, none of which is negative.
    pub fn number(&self, name: &'static str) -> u64 {
        let number = parse_i64(self.get(name)).unwrap_or(0);
        u64::try_from(number).unwrap_or(0)
    }
}
