//! IDs of a stream's entries, drawn at random.

use super::draw::Draw;
use super::grammar::Argv;

/// Most entries have this time, so that IDs meet.
const USUAL_MS: u64 = 7;

impl Draw<'_> {
    pub(super) fn id(&mut self) -> Vec<u8> {
        let ms = match self.rng.u32(..4) {
            0 => self.rng.u64(..10),
            _ => USUAL_MS,
        };
        match self.rng.u32(..60) {
            0 => u64::MAX.to_string().into_bytes(),
            1 => format!("{0}-{0}", u64::MAX).into_bytes(),
            2..=8 => ms.to_string().into_bytes(),
            _ => format!("{ms}-{}", self.rng.u64(..40)).into_bytes(),
        }
    }

    pub(super) fn id_bound(&mut self) -> Vec<u8> {
        match self.rng.u32(..6) {
            0 => b"-".to_vec(),
            1 => b"+".to_vec(),
            2 => [b"(", &self.id()[..]].concat(),
            _ => self.id(),
        }
    }

    /// One to add an entry with: mostly the next.
    pub(super) fn new_id(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.id(),
            1 => format!("{}-*", self.rng.u64(..10)).into_bytes(),
            _ => format!("{}-*", USUAL_MS).into_bytes(),
        }
    }

    /// What a consumer asks for.
    pub(super) fn read_id(&mut self) -> Vec<u8> {
        match self.rng.u32(..5) {
            0 => self.id(),
            1 => b"0".to_vec(),
            _ => b">".to_vec(),
        }
    }

    /// How a stream is trimmed.
    pub(super) fn trim(&mut self, argv: &mut Argv) {
        let strategy = self.one_of(&["MAXLEN", "MINID"]);
        argv.push(self.in_some_case(strategy));
        let threshold = match strategy {
            // What goes then depends on how entries lie in memory; so much is never there.
            "MAXLEN" if self.chance(1, 6) => {
                argv.push(b"~".to_vec());
                b"1000000".to_vec()
            }
            "MAXLEN" => self.rng.u64(..30).to_string().into_bytes(),
            _ => self.id(),
        };
        if self.chance(1, 6) {
            argv.push(b"=".to_vec());
        }
        argv.push(threshold);
    }
}
