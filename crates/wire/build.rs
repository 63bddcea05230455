//! Compiles the schema, with a compiler that is a library: nothing has to be installed.

use std::{error::Error, path::PathBuf};

const FILES: [&str; 2] = ["ctrl/v1/cluster.proto", "ctrl/v1/routing.proto"];

#[expect(clippy::disallowed_methods, reason = "this is how cargo says where the output goes")]
fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../proto";
    println!("cargo:rerun-if-changed={root}");
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true);
    for file in FILES {
        compiler.open_file(file)?;
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptor = out.join("ctrl.fds");
    let encoded = compiler.encode_file_descriptor_set();
    // Its age is looked at before each build: written anew, it would have everything compiled again each time.
    if std::fs::read(&descriptor).ok().as_ref() != Some(&encoded) {
        std::fs::write(&descriptor, encoded)?;
    }
    let mut messages = connectrpc_build::CodeGenConfig::default();
    messages.generate_json = true;
    // What we do not know we do not keep: nothing of ours passes a message on that it did not make.
    messages.preserve_unknown_fields = false;
    messages.emit_register_fn = false;
    connectrpc_build::Config::new()
        .buffa_config(messages)
        .files(&FILES)
        .descriptor_set(descriptor)
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
