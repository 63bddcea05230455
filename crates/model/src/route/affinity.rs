//! Where a client stands on a route's line of weights.

use std::net::IpAddr;

/// A number that is the same for a client of a hostname, today and after a restart, on every sentinel.
///
/// It spreads clients evenly and keeps no secret: whoever knows a client's address can compute it.
pub fn client_hash(hostname: &str, client: IpAddr) -> u64 {
    let seed = hash(FNV_OFFSET, hostname.as_bytes());
    match client.to_canonical() {
        IpAddr::V4(ip) => mix(hash(seed, &ip.octets())),
        IpAddr::V6(ip) => mix(hash(seed, &ip.octets())),
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Spreads every bit over the high ones, which alone decide the choice: FNV leaves them alike for neighbours.
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn neighbours_are_spread_evenly() {
        const CLIENTS: u32 = 65_536;
        let mut tenths = [0_u32; 10];
        for client in 0..CLIENTS {
            let ip = Ipv4Addr::from_bits(0x0a00_0000 + client);
            let tenth = (u128::from(client_hash("example.com", ip.into())) * 10) >> 64;
            tenths[usize::try_from(tenth).unwrap()] += 1;
        }
        let wanted = CLIENTS / 10;
        assert!(tenths.iter().all(|got| got.abs_diff(wanted) < wanted / 20), "{tenths:?}");
    }

    #[test]
    fn a_client_is_the_same_whichever_way_its_address_is_written() {
        let ip = Ipv4Addr::new(10, 0, 0, 7);
        let mapped: Ipv6Addr = ip.to_ipv6_mapped();
        assert_eq!(client_hash("example.com", ip.into()), client_hash("example.com", mapped.into()));
        assert_ne!(client_hash("example.com", ip.into()), client_hash("example.org", ip.into()));
    }

    #[test]
    fn the_number_never_changes() {
        let hash = client_hash("example.com", Ipv4Addr::new(10, 0, 0, 7).into());
        expect_test::expect!["3ea26b2ca24ce170"].assert_eq(&format!("{hash:016x}"));
    }
}
