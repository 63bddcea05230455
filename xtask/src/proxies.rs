//! What a sentinel is measured against: nginx, Go's ReverseProxy, and HAProxy where it is wanted.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::debian;
use crate::k8s;
use crate::stop::Stop;

/// Where the bench finds each.
const NGINX: (&str, &str) = ("KRANE_BENCH_NGINX", "/usr/sbin/nginx");
const HAPROXY: (&str, &str) = ("KRANE_BENCH_HAPROXY", "/usr/sbin/haproxy");
const GO: &str = "KRANE_BENCH_GO_PROXY";

/// Installs what is missing, and says how the bench finds it.
pub(crate) fn ensure_installed(stop: &Stop) -> Result<Vec<(String, String)>> {
    let is_missing = |(_, path): &(&str, &str)| !Path::new(path).exists();
    if [NGINX, HAPROXY].iter().any(is_missing) {
        if !debian::can_install() {
            bail!(
                "the bench needs nginx and HAProxy: for example `apt-get install nginx-light haproxy` as root"
            );
        }
        eprintln!("xtask: proxies are missing; installing Debian's packages");
        debian::update()?;
        debian::install(&["nginx-light", "haproxy"])?;
    }
    for (name, path) in [NGINX, HAPROXY] {
        ensure!(Path::new(path).exists(), "{path} is not there, though it was installed ({name})");
    }
    let go = k8s::reverse_proxy(stop)?;
    let found = [NGINX, HAPROXY].map(|(name, path)| (name.to_owned(), path.to_owned()));
    Ok(found.into_iter().chain([(GO.to_owned(), go)]).collect())
}
