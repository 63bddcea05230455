//! A chunked body, byte for byte as its grammar has it.

use super::head::{HeadLimits, is_token, is_value};
use crate::blame::Client;

/// Follows a chunked body to its end.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    /// Of the present chunk.
    left: u64,
    /// Bytes of sizes and extensions, or of trailers, since the last data.
    spent: usize,
    line: Vec<u8>,
    trailers_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { digits: u8 },
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerLf,
}

pub enum Progress {
    More,
    /// The body ends after so many of the bytes.
    End(usize),
}

/// Digits of a size: more than enough for all that was ever sent.
const DIGITS_MAX: u8 = 15;
const EXTENSION_MAX: usize = 1024;

impl Chunks {
    pub fn new(limits: &HeadLimits) -> Chunks {
        Chunks {
            state: State::Size { digits: 0 },
            left: 0,
            spent: 0,
            line: Vec::new(),
            trailers_max: limits.bytes_max,
        }
    }

    pub fn look(&mut self, bytes: &[u8]) -> Result<Progress, Client> {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == State::Data {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.left -= skipped as u64;
                at += skipped;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            let is_over = self.step(bytes[at])?;
            at += 1;
            if is_over {
                return Ok(Progress::End(at));
            }
        }
        Ok(Progress::More)
    }

    /// Takes one byte that is not data; says whether the body is over.
    fn step(&mut self, byte: u8) -> Result<bool, Client> {
        self.state = match self.state {
            State::Size { digits } => match byte {
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' if digits < DIGITS_MAX => {
                    let digit = char::from(byte).to_digit(16).expect("a hexadecimal digit");
                    self.left = self.left << 4 | u64::from(digit);
                    State::Size { digits: digits + 1 }
                }
                b';' if digits > 0 => State::Extension,
                b'\r' if digits > 0 => State::SizeEnd,
                _ => return Err(Client::Malformed("the size of a chunk is no hexadecimal number")),
            },
            State::Extension => {
                self.spent += 1;
                match byte {
                    b'\r' => State::SizeEnd,
                    _ if is_value(byte) && self.spent <= EXTENSION_MAX => State::Extension,
                    _ => return Err(Client::Malformed("the extension of a chunk is too long or no text")),
                }
            }
            State::SizeEnd if byte == b'\n' => {
                self.spent = 0;
                if self.left == 0 { State::Trailer } else { State::Data }
            }
            State::DataCr if byte == b'\r' => State::DataLf,
            State::DataLf if byte == b'\n' => State::Size { digits: 0 },
            State::Trailer => {
                self.spent += 1;
                if self.spent > self.trailers_max {
                    return Err(Client::HeadTooLarge);
                }
                if byte == b'\r' {
                    State::TrailerLf
                } else {
                    self.line.push(byte);
                    State::Trailer
                }
            }
            State::TrailerLf if byte == b'\n' => {
                let line = std::mem::take(&mut self.line);
                if line.is_empty() {
                    return Ok(true);
                }
                check_trailer(&line)?;
                State::Trailer
            }
            State::SizeEnd | State::DataCr | State::DataLf | State::TrailerLf => {
                return Err(Client::Malformed("a chunk does not end with CR and LF"));
            }
            State::Data => unreachable!("data is passed over in one go"),
        };
        Ok(false)
    }
}

fn check_trailer(line: &[u8]) -> Result<(), Client> {
    let colon = line.iter().position(|byte| *byte == b':');
    let is_field = colon.is_some_and(|colon| {
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        !name.is_empty() && name.iter().copied().all(is_token) && value.iter().copied().all(is_value)
    });
    is_field.then_some(()).ok_or(Client::Malformed("a trailer is no header"))
}
