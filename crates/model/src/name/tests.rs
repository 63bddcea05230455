//! What names take, what they refuse, and how they say so.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::{fmt::Display, str::FromStr};

fn check_refused<T: FromStr<Err = Error> + std::fmt::Debug>(text: &str, expected: &Expect) {
    expected.assert_eq(&text.parse::<T>().unwrap_err().to_string());
}

/// Parses whatever it can, and what it parsed must read back as itself.
fn check_round_trip<T: FromStr + Display + PartialEq + std::fmt::Debug>(
    text: &str,
) -> Result<(), TestCaseError>
where
    T::Err: std::fmt::Debug,
{
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string().parse::<T>();
        prop_assert!(again.is_ok(), "{value} does not read back");
        prop_assert_eq!(again.unwrap(), value);
    }
    Ok(())
}

#[test]
fn a_slug_is_a_short_dns_label() {
    assert_eq!("my-app-2".parse::<Slug>().unwrap().as_str(), "my-app-2");
    check_refused::<Slug>("", &expect!["a slug cannot be empty"]);
    check_refused::<Slug>(
        "My app",
        &expect!["a slug cannot have 'M' at position 0; it is made of a-z, 0-9 and '-'"],
    );
    check_refused::<Slug>("-a", &expect!["a slug starts and ends with a letter or digit"]);
    check_refused::<Slug>(&"a".repeat(49), &expect!["a slug has at most 48 characters, this one has 49"]);
    assert!("a".repeat(48).parse::<Slug>().is_ok());
}

#[test]
fn a_kubernetes_name_starts_with_a_letter() {
    assert!("dep-1".parse::<KubernetesName>().is_ok());
    check_refused::<KubernetesName>("1-dep", &expect!["a Kubernetes name starts with a letter"]);
    assert!("1-dep".parse::<Namespace>().is_ok());
}

#[test]
fn a_label_value_may_have_any_case_and_inner_marks() {
    assert!("Ab_c.d-9".parse::<LabelValue>().is_ok());
    check_refused::<LabelValue>(".a", &expect!["a label value starts and ends with a letter or digit"]);
    check_refused::<LabelValue>(
        &"a".repeat(64),
        &expect!["a label value has at most 63 characters, this one has 64"],
    );
}

#[test]
fn a_pod_name_may_have_dots() {
    assert!("web-7d9f.x-1".parse::<PodName>().is_ok());
    for refused in ["a..b", "-a", "a.-b", "a.", "A"] {
        assert!(refused.parse::<PodName>().is_err(), "{refused}");
    }
}

#[test]
fn a_hostname_has_one_spelling() {
    let hostname: Hostname = "WWW.Example.COM.".parse().unwrap();
    assert_eq!(hostname.as_str(), "www.example.com");
    assert!(!hostname.is_wildcard());
    assert!("*.example.com".parse::<Hostname>().unwrap().is_wildcard());
    assert!("localhost".parse::<Hostname>().is_ok());
}

#[test]
fn a_hostname_that_dns_would_not_know_is_refused() {
    check_refused::<Hostname>("", &expect!["a hostname cannot be empty"]);
    check_refused::<Hostname>("a..b", &expect!["a label of a hostname cannot be empty"]);
    check_refused::<Hostname>(
        "a.*.b",
        &expect!["a label of a hostname cannot have '*' at position 0; it is made of a-z, 0-9 and '-'"],
    );
    check_refused::<Hostname>(
        "10.0.0.1",
        &expect!["a hostname does not end in a number: that would be an address"],
    );
    let long = format!("{}com", "abcdefghi.".repeat(26));
    check_refused::<Hostname>(&long, &expect!["a hostname has at most 253 characters, this one has 263"]);
}

#[test]
fn a_wildcard_covers_exactly_one_label() {
    let wildcard: Hostname = "*.example.com".parse().unwrap();
    assert!(wildcard.covers("a.example.com"));
    for other in ["example.com", "a.b.example.com", ".example.com", "aexample.com", "a.example.org"] {
        assert!(!wildcard.covers(other), "{other}");
    }
    let exact: Hostname = "example.com".parse().unwrap();
    assert!(exact.covers("example.com") && !exact.covers("a.example.com"));
}

#[test]
fn a_name_lies_under_an_apex() {
    let (label, apex) = ("web".parse().unwrap(), "krane.dev".parse().unwrap());
    assert_eq!(Hostname::under(&label, &apex).unwrap().as_str(), "web.krane.dev");
    assert!(Hostname::under(&label, &"*.krane.dev".parse().unwrap()).is_err());
}

#[test]
fn an_image_reference_is_taken_apart() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let check = |text: &str, expected: (Option<&str>, &str, Option<&str>, Option<&str>)| {
        let image: ImageRef = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((image.domain(), image.path(), image.tag(), image.digest()), expected, "{text}");
    };
    check("nginx", (None, "nginx", None, None));
    check("nginx:1.27-alpine", (None, "nginx", Some("1.27-alpine"), None));
    check("krane/sample", (None, "krane/sample", None, None));
    check("localhost/a", (Some("localhost"), "a", None, None));
    check("localhost:5000/a/b:V_1", (Some("localhost:5000"), "a/b", Some("V_1"), None));
    check("[fd00::1]:5000/a", (Some("[fd00::1]:5000"), "a", None, None));
    check("[fd00::1]/a:b", (Some("[fd00::1]"), "a", Some("b"), None));
    check("Registry/a", (Some("Registry"), "a", None, None));
    check(&format!("ghcr.io/a/b@{digest}"), (Some("ghcr.io"), "a/b", None, Some(&digest)));
    check(
        &format!("ghcr.io/a--b/c__d.e:1@{digest}"),
        (Some("ghcr.io"), "a--b/c__d.e", Some("1"), Some(&digest)),
    );
    let image: ImageRef = format!("ghcr.io/a/b:1@{digest}").parse().unwrap();
    assert_eq!(image.name(), "ghcr.io/a/b");
}

#[test]
fn a_wrong_image_reference_is_told_why() {
    let check = |text: &str, expected: Expect| check_refused::<ImageRef>(text, &expected);
    check("", expect!["an image reference cannot be empty"]);
    check(
        "a b",
        expect!["an image reference cannot have ' ' at position 1; it is made of letters, digits and marks"],
    );
    check("Nginx", expect!["an image reference has no upper-case letters in its path"]);
    check("nginx:", expect!["an image reference has a tag behind its last colon"]);
    check(
        "nginx:-a",
        expect![
            "an image reference has a tag of letters, digits, '_', '.' and '-' that starts with none of the last two"
        ],
    );
    check(
        &format!("a:{}", "t".repeat(129)),
        expect!["an image reference has a tag of at most 128 characters"],
    );
    check("https://ghcr.io/a", expect!["an image reference has a port from 1 to 65535 in its domain"]);
    check("ghcr.io/", expect!["an image reference has a name between any two slashes, and at both ends"]);
    check("-a.io/x", expect!["an image reference has a hostname or an address for its domain"]);
    check(
        "a___b",
        expect!["an image reference has a path of a-z and 0-9, joined by one of '.', '_', '__' or '-'"],
    );
    check("a@md5:00", expect!["an image reference has a digest that starts with sha256: or sha512:"]);
    check(
        "a@sha256:00",
        expect!["an image reference has a digest of 64 (sha256) or 128 (sha512) lower-case hex digits"],
    );
    check(&"a".repeat(256), expect!["an image reference has a name of at most 255 characters"]);
}

#[test]
fn a_port_is_a_plain_number_that_can_be_listened_on() {
    assert_eq!("8080".parse::<Port>(), Ok(Port::DEFAULT));
    for refused in ["", "0", "65536", "-1", "+80", "080", "1e3", " 80"] {
        check_refused::<Port>(refused, &expect!["a port is a number from 1 to 65535"]);
    }
    assert_eq!(Port::new(65535).unwrap().get(), 65535);
}

#[test]
fn a_region_has_a_platform_and_a_name() {
    let placement: Placement = "aws/us-east-1:b".parse().unwrap();
    assert_eq!(placement.region.platform.as_str(), "aws");
    assert_eq!(placement.shard.as_str(), "b");
    assert_eq!(placement.to_string(), "aws/us-east-1:b");
    let choice: RegionChoice = "aws/us-east-1".parse().unwrap();
    assert_eq!((choice.to_string().as_str(), choice.shard), ("aws/us-east-1", None));
    check_refused::<RegionKey>(
        "us-east-1",
        &expect!["a region is a platform and a name, like aws/us-east-1"],
    );
    check_refused::<RegionKey>("/us-east-1", &expect!["a platform cannot be empty"]);
    check_refused::<Placement>(
        "aws/us-east-1",
        &expect!["a placement is a region and a shard, like aws/us-east-1:default"],
    );
    assert_eq!(Shard::default().as_str().parse(), Ok(Shard::default()));
}

#[test]
fn an_address_has_brackets_around_ipv6() {
    let address: Address = "[fd00::7]:8080".parse().unwrap();
    assert_eq!(address.to_string(), "[fd00::7]:8080");
    assert_eq!(address.socket(), Some("[fd00::7]:8080".parse().unwrap()));
    assert_eq!("web.sentinel.svc:8040".parse::<Address>().unwrap().socket(), None);
    check_refused::<Address>("fd00::7:8080", &expect!["an address has brackets around an IPv6 host"]);
    check_refused::<Address>(
        "10.0.0.1",
        &expect!["an address is a host and a port, like 10.0.0.7:8080 or [fd00::7]:8080"],
    );
    check_refused::<Address>("[10.0.0.1]:80", &expect!["an address has an IPv6 address in its brackets"]);
    check_refused::<Address>("*.a:80", &expect!["an address cannot have a wildcard for a host"]);
}

#[test]
fn our_own_variables_are_reserved() {
    let is_reserved = |name: &str| name.parse::<EnvName>().unwrap().is_reserved();
    assert!(is_reserved("PORT") && is_reserved("UNKEY_REGION") && is_reserved("KUBERNETES_SERVICE_HOST"));
    assert!(!is_reserved("PORTAL") && !is_reserved("_"));
    check_refused::<EnvName>("1A", &expect!["a variable name does not start with a digit"]);
}

#[test]
fn a_signal_is_one_of_seven() {
    assert_eq!("SIGTERM".parse(), Ok(Signal::Term));
    check_refused::<Signal>(
        "TERM",
        &expect![[
            r#""TERM" is not a signal; choose one of SIGTERM, SIGINT, SIGQUIT, SIGKILL, SIGHUP, SIGUSR1, SIGUSR2"#
        ]],
    );
}

#[test]
fn a_commit_hash_is_whole() {
    assert!("0123456789abcdef0123456789abcdef01234567".parse::<GitSha>().is_ok());
    check_refused::<GitSha>("0123456", &expect!["a commit hash has 40 or 64 characters"]);
}

#[test]
fn a_message_is_cut_between_characters() {
    let message = Message::cut(&"ü".repeat(1000));
    assert_eq!(message.as_str(), "ü".repeat(512));
    let odd = Message::cut(&format!("a{}", "ü".repeat(1000)));
    assert_eq!(odd.as_str().len(), 1023);
    assert_eq!(Message::cut("a\0b\u{1b}[31m\n\tc").as_str(), "a b [31m\n\tc");
}

proptest! {
    #[test]
    fn parsing_never_panics_and_reads_back(
        text in "\\PC*|.{0,80}|[a-z0-9.:/@_-]{0,80}|[A-Z*a-z0-9.-]{1,40}|\\[[0-9a-f:]{0,12}\\]:[0-9]{1,6}(/[a-z]{1,3})?",
    ) {
        check_round_trip::<Slug>(&text)?;
        check_round_trip::<DnsLabel>(&text)?;
        check_round_trip::<KubernetesName>(&text)?;
        check_round_trip::<Namespace>(&text)?;
        check_round_trip::<PodName>(&text)?;
        check_round_trip::<LabelValue>(&text)?;
        check_round_trip::<Hostname>(&text)?;
        check_round_trip::<ImageRef>(&text)?;
        check_round_trip::<Port>(&text)?;
        check_round_trip::<Platform>(&text)?;
        check_round_trip::<RegionName>(&text)?;
        check_round_trip::<RegionKey>(&text)?;
        check_round_trip::<RegionChoice>(&text)?;
        check_round_trip::<Placement>(&text)?;
        check_round_trip::<Shard>(&text)?;
        check_round_trip::<Address>(&text)?;
        check_round_trip::<Line>(&text)?;
        check_round_trip::<Branch>(&text)?;
        check_round_trip::<GitSha>(&text)?;
        check_round_trip::<Message>(&text)?;
        check_round_trip::<EnvName>(&text)?;
        check_round_trip::<Signal>(&text)?;
    }

    #[test]
    fn every_dns_label_is_a_slug_or_too_long(text in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?") {
        prop_assert!(text.parse::<DnsLabel>().is_ok());
        prop_assert_eq!(text.parse::<Slug>().is_ok(), text.len() <= crate::limits::SLUG_CHARS);
    }

    #[test]
    fn every_reference_of_the_grammar_parses(
        domain in "([a-zA-Z0-9]{1,5}(-[a-zA-Z0-9]{1,3})?\\.[a-z]{2,3}(:[1-9][0-9]{0,3})?/)?",
        path in "[a-z0-9]{1,5}((_|__|-{1,3})[a-z0-9]{1,3}){0,3}(/[a-z0-9]{1,5}(\\.[a-z0-9])?){0,3}",
        tag in "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?",
        digest in "(@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?",
    ) {
        let text = format!("{domain}{path}{tag}{digest}");
        let image: ImageRef = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(image.path(), path);
        prop_assert_eq!(image.domain().map(|d| format!("{d}/")).unwrap_or_default(), domain);
        prop_assert_eq!(image.tag().map(|t| format!(":{t}")).unwrap_or_default(), tag);
        prop_assert_eq!(image.digest().map(|d| format!("@{d}")).unwrap_or_default(), digest);
    }

    #[test]
    fn every_address_reads_back(ip: std::net::IpAddr, port in 1_i64..65536) {
        let address = Address::new(ip, Port::new(port).unwrap());
        prop_assert_eq!(address.to_string().parse(), Ok(address.clone()));
        prop_assert_eq!(Some(address.to_string().parse().unwrap()), address.socket());
    }

    #[test]
    fn a_message_is_always_bounded_and_printable(text in "(?s).{0,2000}") {
        let message = Message::cut(&text);
        prop_assert!(message.as_str().len() <= crate::limits::MESSAGE_BYTES);
        prop_assert!(message.as_str().chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
    }
}
