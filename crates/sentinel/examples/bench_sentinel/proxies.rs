//! The proxies that are compared, each in front of the same instance, and the instance.

use std::{net::SocketAddr, path::Path};

use crate::{
    process::{APART, BESIDE, Process, free_port, krane, pinned},
    table::{HOST, prepare},
};

/// A proxy, and where it takes requests by each protocol.
pub struct Proxy {
    pub name: &'static str,
    pub process: Process,
    pub http1: SocketAddr,
    pub http2: SocketAddr,
}

pub const SMALL: usize = 65;
pub const LARGE: usize = 256 * 1024;

/// Where `cargo xtask bench` has put a program.
fn program(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`cargo xtask bench` says by {name} where it is"))
}

/// Writes a configuration and returns its path.
fn write(home: &Path, name: &str, text: &str) -> String {
    let path = home.join(name);
    std::fs::write(&path, text).expect("a configuration can be written");
    path.to_str().expect("it is text").to_owned()
}

/// nginx that answers by itself: `/small` and `/large`.
pub async fn instance(home: &Path) -> (Process, SocketAddr) {
    let address = free_port();
    std::fs::write(home.join("small"), vec![b'a'; SMALL]).expect("a file can be written");
    std::fs::write(home.join("large"), vec![b'a'; LARGE]).expect("a file can be written");
    let server = format!("server {{ listen {address}; root {}; }}", home.display());
    (nginx(home, "instance", BESIDE, &server, address).await, address)
}

async fn nginx(home: &Path, name: &str, core: usize, servers: &str, address: SocketAddr) -> Process {
    let home = home.display();
    let text = format!(
        "daemon off; master_process off; pid {home}/{name}.pid; error_log /dev/null;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {home}/{name}-body;\n\
         proxy_temp_path {home}/{name}-proxy; fastcgi_temp_path {home}/{name}-f; uwsgi_temp_path {home}/{name}-u;\n\
         scgi_temp_path {home}/{name}-s; open_file_cache max=10; sendfile on; tcp_nodelay on;\n{servers}\n}}\n"
    );
    let path = write(Path::new(&home.to_string()), &format!("{name}.conf"), &text);
    let mut command = pinned(core, &program("KRANE_BENCH_NGINX"));
    command.args(["-c", &path]);
    Process::listening(command, address).await
}

pub async fn ours(home: &Path, instance: SocketAddr) -> Proxy {
    let directory = home.join("sentinel");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let settings = prepare(&directory, &[instance], "workers = 1").await;
    let mut command = pinned(APART, &krane());
    command.args(["sentinel", "--config", &settings]);
    let (process, address) = Process::saying(command, "listen  http://").await;
    Proxy { name: "krane", process, http1: address, http2: address }
}

pub async fn nginx_proxy(home: &Path, instance: SocketAddr) -> Proxy {
    let (http1, http2) = (free_port(), free_port());
    let location = "location / { proxy_pass http://instance; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }";
    let servers = format!(
        "upstream instance {{ server {instance}; keepalive 256; keepalive_requests 1000000000; }}\n\
         server {{ listen {http1}; {location} }}\nserver {{ listen {http2} http2; {location} }}"
    );
    let process = nginx(home, "proxy", APART, &servers, http1).await;
    Proxy { name: "nginx", process, http1, http2 }
}

pub async fn go_proxy(instance: SocketAddr) -> Proxy {
    let mut command = pinned(APART, &program("KRANE_BENCH_GO_PROXY"));
    command.args(["-instance", &instance.to_string()]).env("GOMAXPROCS", "1");
    let (process, address) = Process::saying(command, "").await;
    Proxy { name: "go", process, http1: address, http2: address }
}

pub async fn haproxy(home: &Path, instance: SocketAddr) -> Proxy {
    let (http1, http2) = (free_port(), free_port());
    let text = format!(
        "global\n nbthread 1\n maxconn 8192\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\n option forwardfor\n http-reuse always\nfrontend f\n bind {http1}\n bind {http2} proto h2\n \
         default_backend b\nbackend b\n server s {instance}\n"
    );
    let path = write(home, "haproxy.cfg", &text);
    let mut command = pinned(APART, &program("KRANE_BENCH_HAPROXY"));
    command.args(["-db", "-f", &path]);
    let process = Process::listening(command, http1).await;
    Proxy { name: "haproxy", process, http1, http2 }
}

/// The authority of every request.
pub fn host() -> &'static str {
    HOST
}
