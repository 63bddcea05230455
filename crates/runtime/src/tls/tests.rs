//! Files as they are mounted, and files that are wrong.

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use super::*;

/// A certificate for `krane.test` that vouches for itself, and its key; both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["krane.test".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

/// A mounted secret: what is in it is reached over a link, and changes by a new link in its place.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Self {
        let directory = Self(TempDir::new().unwrap());
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("current/{name}"), directory.path(name)).unwrap();
        }
        directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.path("tls.key")
    }

    pub(crate) fn put(&self, pair: &Pair) {
        let version = TempDir::new_in(self.0.path()).unwrap().keep();
        fs::write(version.join("tls.crt"), &pair.certificate).unwrap();
        fs::write(version.join("tls.key"), &pair.key).unwrap();
        symlink(&version, self.path("next")).unwrap();
        fs::rename(self.path("next"), self.path("current")).unwrap();
    }

    /// Writes the certificate where no change reaches it.
    pub(crate) fn keep(&self, pair: &Pair) -> PathBuf {
        let path = self.path("kept.crt");
        fs::write(&path, &pair.certificate).unwrap();
        path
    }

    pub(crate) fn remove(&self) {
        fs::remove_file(self.path("current")).unwrap();
    }

    pub(crate) fn server(&self) -> ServerTls {
        ServerTls::load(self.certificate(), self.key()).unwrap()
    }

    fn refusal(&self) -> TlsError {
        ServerTls::load(self.certificate(), self.key()).unwrap_err()
    }
}

#[test]
fn a_file_that_is_missing_is_named() {
    let directory = Directory::new();
    let error = directory.refusal();
    assert_eq!(error.to_string(), format!("cannot read {}", directory.certificate().display()));
    assert!(error.source().is_some());
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let good = Pair::new();
    let directory = Directory::new();
    let (certificate, key) = (directory.certificate(), directory.key());
    let cut = |text: &str| text.split("-----END").next().unwrap().to_owned();
    let cases = [
        (String::new(), good.key.clone(), &certificate, "holds no certificate"),
        (good.key.clone(), good.key.clone(), &certificate, "holds no certificate"),
        (cut(&good.certificate), good.key.clone(), &certificate, "is cut short: a section of it has no end"),
        (good.certificate.clone(), String::new(), &key, "holds no private key"),
        (good.certificate.clone(), good.certificate.clone(), &key, "holds no private key"),
        (good.certificate.clone(), cut(&good.key), &key, "is cut short: a section of it has no end"),
        (" ".repeat(5 << 20), good.key.clone(), &certificate, "is larger than 4 MiB"),
    ];
    for (certificate, key, path, reason) in cases {
        directory.put(&Pair { certificate, key });
        assert_eq!(directory.refusal().to_string(), format!("{} {reason}", path.display()));
    }
}

#[test]
fn a_certificate_and_a_key_of_another_are_refused() {
    let directory = Directory::new();
    directory.put(&Pair { certificate: Pair::new().certificate, key: Pair::new().key });
    let error = directory.refusal();
    let (certificate, key) = (directory.certificate(), directory.key());
    let expected =
        format!("the certificate in {} does not go with the key in {}", certificate.display(), key.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.source().unwrap().to_string(), "keys may not be consistent: KeyMismatch");
}

#[test]
fn a_key_is_in_no_error_and_in_no_debug_text() {
    let good = Pair::new();
    let secret = good.key.lines().nth(1).unwrap().to_owned();
    let directory = Directory::new();
    directory.put(&good);
    assert!(!format!("{:?}", directory.server()).contains(&secret));
    assert!(!format!("{:?}", directory.server().config()).contains(&secret));

    let one_line = good.key.replace('\n', " ");
    let unended = good.key.replace("-----END", "-----ENDE");
    let without_dashes = good.key.replacen("KEY-----\n", "KEY", 1);
    let not_base64 = good.key.replacen(&secret, &format!("{secret}!"), 1);
    let not_a_key = good.key.replacen(&secret, &secret.chars().rev().collect::<String>(), 1);
    for key in [one_line, unended, without_dashes, not_base64, not_a_key] {
        directory.put(&Pair { certificate: good.certificate.clone(), key });
        let error = directory.refusal();
        let shown = format!("{error} {error:?} {:?}", error.source().map(ToString::to_string));
        assert!(shown.contains("tls.key"), "{shown}");
        assert!(!shown.contains(&secret[..16]), "{shown}");
    }
}

#[test]
fn roots_are_those_of_the_file_or_of_mozilla() {
    let directory = Directory::new();
    directory.put(&Pair::new());
    let roots = Roots::File(directory.certificate());
    assert!(client_config(&roots).unwrap().alpn_protocols.is_empty());
    assert_eq!(ClientTls::load(&roots).unwrap().config().alpn_protocols, [b"h2"]);
    assert!(client_config(&Roots::Mozilla).is_ok());
}

#[test]
fn a_root_that_is_none_is_named_by_its_place() {
    let directory = Directory::new();
    let good = Pair::new().certificate;
    let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    directory.put(&Pair { certificate: format!("{good}{bad}"), key: String::new() });
    let path = directory.certificate();
    let error = client_config(&Roots::File(path.clone())).unwrap_err();
    assert_eq!(error.to_string(), format!("certificate 2 in {} is not one", path.display()));

    directory.put(&Pair { certificate: String::new(), key: String::new() });
    let error = client_config(&Roots::File(path.clone())).unwrap_err();
    assert_eq!(error.to_string(), format!("{} holds no certificate", path.display()));
}
