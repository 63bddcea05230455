//! What tokens and derived credentials promise.

use std::collections::BTreeSet;

use model::id::EnvironmentId;
use proptest::prelude::*;
use runtime::config::SecretString;

use super::{derived::Subject, *};

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn id(text: &str) -> LabelValue {
    text.parse().unwrap()
}

fn hex(bytes: [u8; 32]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from_digit(digit.into(), 16).unwrap())
        .collect()
}

fn keys(given: &[(&str, &str)]) -> CredentialKeys {
    let given = given.iter().map(|(name, text)| (id(name), SecretString::new(*text))).collect();
    CredentialKeys::parse(given).unwrap()
}

fn refused(given: &[(&str, &str)]) -> String {
    let given = given.iter().map(|(name, text)| (id(name), SecretString::new(*text))).collect();
    CredentialKeys::parse(given).unwrap_err().to_string()
}

fn sentinel_token(bearer: &Bearer) -> SentinelToken {
    match bearer.presented() {
        Some(Presented::Sentinel(token)) => token,
        other => panic!("no sentinel's token: {other:?}"),
    }
}

fn credentials(keys: &CredentialKeys, credential: u32, gossip: u32) -> Credentials {
    let (sentinel, environment) = (SentinelId::sample(1), EnvironmentId::sample(1));
    let key = keys.newest().clone();
    keys.credentials(sentinel, environment, &key, Generation(credential), Generation(gossip)).unwrap()
}

#[test]
fn a_token_is_its_prefix_its_kind_and_52_characters() {
    for (kind, prefix) in [(TokenKind::User, "krane_user_"), (TokenKind::Agent, "krane_agent_")] {
        let bearer = Bearer::generate(kind, &Random::seeded(1));
        let secret = bearer.reveal().strip_prefix(prefix).unwrap();
        assert_eq!(secret.len(), 52);
        assert!(secret.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert!(matches!(bearer.presented(), Some(Presented::Stored { kind: found, .. }) if found == kind));
    }
}

#[test]
fn the_hash_is_sha_256_of_the_text() {
    let text = format!("krane_user_{}", "0".repeat(52));
    let Some(Presented::Stored { hash, .. }) = Bearer::parse(&text).unwrap().presented() else {
        panic!("a stored token")
    };
    // printf krane_user_000…0 | sha256sum
    assert_eq!(hex(hash.0), "8e4c755408de873de8fb8d00fdafb9be095e7176f60dbb706c84ad09bc42a0f7");
}

#[test]
fn the_kinds_of_one_secret_never_collide() {
    let secret = "0".repeat(52);
    let hash = |kind: &str| match Bearer::parse(&format!("krane_{kind}_{secret}")).unwrap().presented() {
        Some(Presented::Stored { kind, hash }) => (kind, hash),
        other => panic!("{other:?}"),
    };
    let (user, agent) = (hash("user"), hash("agent"));
    assert_ne!(user.0, agent.0);
    assert!(!user.1.matches(&agent.1));
    assert_eq!(Bearer::parse(&format!("krane_sentinel_{secret}")), None);
}

#[test]
fn a_header_is_read_whatever_the_case_of_its_scheme() {
    let token = format!("krane_agent_{}", "1".repeat(52));
    for scheme in ["Bearer ", "bearer ", "BEARER ", "Bearer   "] {
        assert_eq!(Bearer::from_header(&format!("{scheme}{token}")), Bearer::parse(&token), "{scheme:?}");
    }
    for wrong in ["", "Bearer", "Bearer ", "Basic ", "Bearer\t", "Bearer x"] {
        assert_eq!(Bearer::from_header(&format!("{wrong}{token}x")), None, "{wrong:?}");
    }
    assert_eq!(Bearer::from_header(&token), None);
    assert_eq!(Bearer::from_header(&format!("Basic {token}")), None);
    assert_eq!(Bearer::from_header(&format!("Bearer {token} {token}")), None);
}

#[test]
fn a_sentinels_token_names_itself_and_verifies() {
    let keys = keys(&[("a.1", HEX)]);
    let token = credentials(&keys, 7, 1).token;
    let start = format!("krane_sentinel_{}.a.1.7.", SentinelId::sample(1));
    assert_eq!(token.reveal().len(), start.len() + 52);
    assert!(token.reveal().starts_with(&start));
    let taken_apart = sentinel_token(&token);
    assert_eq!((taken_apart.key.as_str(), taken_apart.generation), ("a.1", Generation(7)));
    assert!(keys.verify(&taken_apart));
}

#[test]
fn what_is_signed_and_how_is_written_down() {
    assert_eq!(
        Subject::Sentinel(SentinelId::sample(1)).bytes(Generation(258)),
        [b"sentinel\0sen_01hf7yat000000000000000001\0".as_slice(), &[0, 0, 1, 2]].concat()
    );
    assert_eq!(
        Subject::Gossip(EnvironmentId::sample(2)).bytes(Generation(1)),
        [b"gossip\0env_01hf7yat000000000000000002\0".as_slice(), &[0, 0, 0, 1]].concat()
    );
    // printf 'gossip\0env_…\0\0\0\0\1' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0001…1f
    let newest = credentials(&keys(&[("a", HEX)]), 1, 1).gossip_keys[0];
    assert_eq!(hex(newest), "8e5a09fd0f97673e2e4ecc37040b359cc73088e1ff33baa63ddc6d4d63aea84f");
}

#[test]
fn gossip_keys_are_the_newest_and_the_one_before() {
    let keys = keys(&[("a", HEX)]);
    let first = credentials(&keys, 1, 0).gossip_keys;
    let second = credentials(&keys, 1, 1).gossip_keys;
    let third = credentials(&keys, 1, 2).gossip_keys;
    assert_eq!([first.len(), second.len(), third.len()], [1, 2, 2]);
    assert_eq!(second[1], first[0]);
    assert_eq!(third[1], second[0]);
    assert_ne!(third[0], third[1]);
}

#[test]
fn a_key_that_is_not_loaded_makes_and_verifies_nothing() {
    let (old, new) = (keys(&[("a", HEX)]), keys(&[("b", &HEX.replace('0', "f"))]));
    let token = sentinel_token(&credentials(&old, 1, 1).token);
    assert!(old.verify(&token) && !new.verify(&token));
    let (sentinel, environment) = (SentinelId::sample(1), EnvironmentId::sample(1));
    assert_eq!(new.credentials(sentinel, environment, &id("a"), Generation(1), Generation(1)), None);
}

#[test]
fn the_key_before_still_verifies_beside_the_newest() {
    let second = HEX.replace('0', "e");
    let token = sentinel_token(&credentials(&keys(&[("a", HEX)]), 1, 1).token);
    let both = keys(&[("b", &second), ("a", HEX)]);
    assert_eq!(both.newest().as_str(), "b");
    assert!(both.verify(&token));
    // The same id with another secret is another key.
    assert!(!keys(&[("a", &second)]).verify(&token));
}

#[test]
fn a_key_is_hex_or_base64() {
    let forms = [
        HEX.to_owned(),
        HEX.to_uppercase(),
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8".to_owned(),
    ];
    let derived = forms.map(|form| credentials(&keys(&[("a", &form)]), 3, 3).gossip_keys);
    assert!(derived.iter().all(|keys| *keys == derived[0]));
    // `+/` of one alphabet is `-_` of the other.
    let [plus, minus] = ["+/", "-_"].map(|mark| format!("{mark}{}", "A".repeat(41)));
    let derived = [plus, minus].map(|form| credentials(&keys(&[("a", &form)]), 3, 3).gossip_keys);
    assert_eq!(derived[0], derived[1]);
}

#[test]
fn a_bad_key_is_named_and_never_shown() {
    let short = "00112233445566778899aabbccddeeff";
    let all =
        refused(&[("one", short), ("two", "not a key!"), ("three", HEX), ("three", HEX), ("four", HEX)]);
    assert_eq!(
        all,
        "credential_key.one: a key has 32 to 1024 bytes, this one has 16; \
         credential_key.two: a key is written in hex or in base64; \
         credential_key.three: there are two keys of this id; \
         credential_key.four: it is the same key as three"
    );
    assert_eq!(refused(&[]), "credential_key: at least one is needed");
}

#[test]
fn a_generated_key_can_be_loaded() {
    let [one, two] = [1, 2].map(|seed| CredentialKeys::generate(&Random::seeded(seed)));
    assert_ne!(one.expose(), two.expose());
    assert!(CredentialKeys::parse(vec![(id("one"), one), (id("two"), two)]).is_ok());
}

#[test]
fn nothing_secret_is_printed() {
    let keys = keys(&[("a", HEX)]);
    let credentials = credentials(&keys, 1, 1);
    let stored = Bearer::generate(TokenKind::Agent, &Random::seeded(1));
    let printed = [
        format!("{keys:?}"),
        format!("{credentials:?}"),
        format!("{:?}", credentials.token),
        format!("{:?}", credentials.token.presented()),
        format!("{stored:?} {:#?}", stored.presented()),
    ];
    let secrets: BTreeSet<String> = [
        HEX[..8].to_owned(),
        credentials.token.reveal().rsplit_once('.').unwrap().1[..8].to_owned(),
        stored.reveal()["krane_agent_".len()..][..8].to_owned(),
        format!("{:?}", &credentials.gossip_keys[0][..4]),
    ]
    .into();
    for (text, secret) in printed.iter().flat_map(|text| secrets.iter().map(move |secret| (text, secret))) {
        assert!(!text.contains(secret.as_str()), "{text}");
    }
    assert_eq!(printed[0], r#"CredentialKeys["a"]"#);
}

/// A token, and the same with one character put in place of another.
fn with_one_change() -> impl Strategy<Value = (String, String)> {
    let any_token = (any::<u64>(), 0..3, 0_u32..100).prop_map(|(seed, kind, generation)| {
        let random = Random::seeded(seed);
        match kind {
            0 => Bearer::generate(TokenKind::User, &random),
            1 => Bearer::generate(TokenKind::Agent, &random),
            _ => credentials(&keys(&[("a.b", HEX), ("a.c", &HEX.replace('0', "a"))]), generation, 1).token,
        }
    });
    let places = (any::<prop::sample::Index>(), "[ -~]");
    (any_token, places).prop_filter_map("the same character", |(bearer, (place, put))| {
        let before = bearer.reveal().to_owned();
        let place = place.index(before.len());
        let after = format!("{}{put}{}", &before[..place], &before[place + 1..]);
        (after != before).then_some((before, after))
    })
}

proptest! {
    #[test]
    fn any_change_of_any_part_is_refused((before, after) in with_one_change()) {
        let keys = keys(&[("a.b", HEX), ("a.c", &HEX.replace('0', "a"))]);
        let good = Bearer::parse(&before).and_then(|bearer| bearer.presented()).unwrap();
        match Bearer::parse(&after).and_then(|bearer| bearer.presented()) {
            None => {}
            // It is another token, which the store does not know.
            Some(Presented::Stored { hash, .. }) => {
                let Presented::Stored { hash: known, .. } = good else { panic!("a kind became another") };
                prop_assert!(!hash.matches(&known));
            }
            Some(Presented::Sentinel(token)) => prop_assert!(!keys.verify(&token)),
        }
    }

    #[test]
    fn whatever_parses_is_spelt_as_we_write_it(
        text in ".{0,80}|krane_(user|agent|sentinel)_.{0,80}|krane_sentinel_sen_[0-7][0-9a-z]{25}\\.[a-z.]{1,5}\\.[0-9]{1,3}\\.[01][0-9a-z]{51}",
    ) {
        if let Some(bearer) = Bearer::parse(&text) {
            prop_assert_eq!(bearer.reveal(), &text);
            if let Some(Presented::Sentinel(token)) = bearer.presented() {
                prop_assert_eq!(Bearer::of(&token), bearer);
            }
        }
        let _ = Bearer::from_header(&text);
    }

    #[test]
    fn arbitrary_keys_never_panic_and_are_never_shown(text in ".{8,70}") {
        let given = vec![(id("the-id"), SecretString::new(text.clone()))];
        if let Err(invalid) = CredentialKeys::parse(given) {
            let invalid = invalid.to_string();
            prop_assert!(invalid.contains("the-id") && !invalid.contains(&text));
        }
    }

    #[test]
    fn what_is_derived_differs_in_every_part(
        sentinel: u128, environment: u128, generation in 0_u32..u32::MAX, other in 1_u128..,
    ) {
        let subjects = [
            (Subject::Sentinel(SentinelId::from_u128(sentinel)), generation),
            (Subject::Sentinel(SentinelId::from_u128(sentinel.wrapping_add(other))), generation),
            (Subject::Sentinel(SentinelId::from_u128(sentinel)), generation + 1),
            (Subject::Gossip(EnvironmentId::from_u128(environment)), generation),
            (Subject::Gossip(EnvironmentId::from_u128(environment.wrapping_add(other))), generation),
            (Subject::Gossip(EnvironmentId::from_u128(environment)), generation + 1),
        ];
        let bytes: BTreeSet<_> =
            subjects.iter().map(|(subject, generation)| subject.bytes(Generation(*generation))).collect();
        prop_assert_eq!(bytes.len(), subjects.len());
    }
}
