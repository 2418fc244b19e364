//! An authority and a certificate for the loopback, made for one test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::output_of;

#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

const FOR_SERVERS: &str = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n";

impl Certificates {
    pub(crate) fn make(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name);
        let text = |name: &str| file(name).to_str().expect("a folder with a plain name").to_owned();
        let openssl = |line: &str, more: &[&str]| {
            let mut args: Vec<&str> = line.split(' ').collect();
            args.extend(more);
            output_of("openssl", &args).unwrap_or_else(|failure| panic!("{failure}"));
        };
        let new_key = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout";
        openssl(new_key, &[&text("ca.key"), "-x509", "-out", &text("ca.pem"), "-days", "2", "-subj", "/CN=Authority of a test"]);
        openssl(new_key, &[&text("server.key"), "-out", &text("server.csr"), "-subj", "/CN=localhost"]);
        fs::write(file("server.ext"), FOR_SERVERS).expect("the folder can be written");
        openssl(
            "x509 -req -days 2 -CAcreateserial -CAkey",
            &[
                &text("ca.key"),
                "-CA",
                &text("ca.pem"),
                "-in",
                &text("server.csr"),
                "-extfile",
                &text("server.ext"),
                "-out",
                &text("server.pem"),
            ],
        );
        Self { authority: file("ca.pem"), certificate: file("server.pem"), key: file("server.key") }
    }
}
