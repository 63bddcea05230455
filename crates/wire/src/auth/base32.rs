//! 256 bits as text: 52 characters, one spelling each.

/// The alphabet of our ids: no `i`, `l`, `o` and `u`, which are mistaken for others, and no upper case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of 256 bits. The first holds one bit, each of the others five.
pub(super) const CHARS: usize = 52;

/// The most significant bits first, as an id is written.
pub(super) fn write(bytes: &[u8; 32]) -> String {
    let digit = |place: usize| {
        // Counted from the last bit of the text, which is the last bit of the bytes.
        let bits = (0..5).filter(|bit| is_set(bytes, place * 5 + bit)).fold(0, |bits, bit| bits | 1 << bit);
        char::from(ALPHABET[bits])
    };
    (0..CHARS).rev().map(digit).collect()
}

/// The bytes of a text that [`write()`] gives, and of no other.
pub(super) fn read(text: &str) -> Option<[u8; 32]> {
    if text.len() != CHARS {
        return None;
    }
    let mut bytes = [0; 32];
    for (place, character) in text.bytes().rev().enumerate() {
        let digit = ALPHABET.iter().position(|known| *known == character)?;
        for bit in (0..5).filter(|bit| digit >> bit & 1 == 1) {
            let position = place * 5 + bit;
            let byte = bytes.len().checked_sub(position / 8 + 1)?;
            bytes[byte] |= 1 << (position % 8);
        }
    }
    Some(bytes)
}

/// Whether the bit is set, counted from the last one; beyond the first there are only zeroes.
fn is_set(bytes: &[u8; 32], position: usize) -> bool {
    bytes.iter().rev().nth(position / 8).is_some_and(|byte| byte >> (position % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_character_holds_one_bit() {
        assert_eq!(write(&[0; 32]), "0".repeat(CHARS));
        assert_eq!(write(&[255; 32]), format!("1{}", "z".repeat(CHARS - 1)));
        assert_eq!(read(&format!("2{}", "0".repeat(CHARS - 1))), None);
    }

    #[test]
    fn bits_are_written_most_significant_first() {
        let mut bytes = [0; 32];
        bytes[31] = 0b0010_0001;
        assert_eq!(write(&bytes), format!("{}11", "0".repeat(CHARS - 2)));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes: [u8; 32]) {
            prop_assert_eq!(read(&write(&bytes)), Some(bytes));
        }

        #[test]
        fn whatever_reads_has_one_spelling(text in "[01][0-9a-z]{51}|.{0,60}") {
            if let Some(bytes) = read(&text) {
                prop_assert_eq!(write(&bytes), text);
            }
        }
    }
}
