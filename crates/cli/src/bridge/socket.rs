//! The control socket of a running bridge: one line of JSON with a request, one with the answer.
//!
//! Its permissions say who may change the bridge; they are set before anybody can connect. A socket that a killed bridge
//! has left is replaced; one that is answered is not.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::request::Request;
use super::{Target, show};
use crate::failure::Failure;

/// The bridge that commands are for if none is named.
pub const DEFAULT_NAME: &str = "br0";
/// How long a client may take for its request, and wait for the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request.
const MOST_BYTES: u64 = 1 << 16;

/// The path of the control socket of a bridge of this name: in the user's runtime directory, or in /run for root.
///
/// # Errors
/// There is no such directory, or the name is not one.
pub fn usual_place(name: &str) -> Result<PathBuf, Failure> {
    check_name(name).map_err(Failure::Usage)?;
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        _ => {
            return Err(Failure::Usage(
                "there is no XDG_RUNTIME_DIR for the control socket: choose its place with --control".to_owned(),
            ));
        }
    };
    Ok(directory.join(format!("heddle-bridge-{name}.sock")))
}

/// Checks that a name is one of a bridge, and no path.
///
/// # Errors
/// A sentence for the user.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("`{name}` is no name of a bridge: use letters, digits, - and _"));
    }
    Ok(())
}

/// Opens the socket for a bridge that starts. It is made in a directory that only this user may enter, and moved to its
/// place once it has its permissions.
///
/// # Errors
/// Another bridge answers there, or the place cannot be written to.
pub fn listen(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| {
        Failure::Failed(format!(
            "cannot make the control socket {}: {error}; choose another place with --control",
            path.display()
        ))
    };
    if UnixStream::connect(path).is_ok() {
        return Err(Failure::Failed(format!(
            "a bridge is running with the control socket {}; choose another --name",
            path.display()
        )));
    }
    // A socket that nobody answers is of a bridge that was killed.
    if fs::symlink_metadata(path).is_ok_and(|there| !is_socket(&there)) {
        return Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    let directory = path.with_extension(format!("{}.new", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
    let made = make(&directory.join("s"), path, mode);
    // Empty by now, unless something went wrong that is reported.
    let _ = fs::remove_dir_all(&directory);
    made.map_err(failed)
}

fn make(first: &Path, path: &Path, mode: u32) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(first)?;
    fs::set_permissions(first, fs::Permissions::from_mode(mode))?;
    fs::rename(first, path)?;
    Ok(listener)
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type())
}

/// Answers clients, one after the other, for ever.
pub fn serve(listener: &UnixListener, answer: impl Fn(Request) -> Result<Value, String>) {
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        // A client that goes away gets no answer.
        let _ = serve_one(&client, &answer);
    }
}

fn serve_one(mut client: &UnixStream, answer: &impl Fn(Request) -> Result<Value, String>) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(client, MOST_BYTES)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => answer(request),
        Err(error) => Err(format!("the request cannot be read: {error}; use the same version of heddle")),
    };
    let reply = match reply {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": error }),
    };
    client.write_all(format!("{reply}\n").as_bytes())
}

/// Asks a running bridge.
///
/// # Errors
/// No bridge answers there, the user may not ask it, or it refuses.
pub fn ask(path: &Path, request: &Request) -> Result<Value, Failure> {
    let shown = path.display();
    let client = UnixStream::connect(path).map_err(|error| {
        Failure::Failed(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("you may not use the control socket {shown}: run as its owner, or start the bridge with --mode")
            }
            _ => format!(
                "no bridge answers at {shown}: {error}; start one with `heddle bridge run`, or name it with --name"
            ),
        })
    })?;
    let asked = || -> io::Result<Value> {
        client.set_read_timeout(Some(PATIENCE))?;
        let request = serde_json::to_string(request)?;
        (&client).write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&client).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    let mut reply =
        asked().map_err(|error| Failure::Failed(format!("the bridge at {shown} gave no answer: {error}")))?;
    match reply.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::Failed(error.to_owned())),
        None => Ok(reply["ok"].take()),
    }
}

/// Asks the bridge that a command is for, and prints the answer.
///
/// # Errors
/// As [`ask`].
pub fn ask_and_print(target: &Target, request: &Request) -> Result<(), Failure> {
    let path = match &target.control {
        Some(path) => path.clone(),
        None => usual_place(&target.name)?,
    };
    let answer = ask(&path, request)?;
    if target.json {
        println!("{answer}");
    } else {
        print!("{}", show::lines(request, &answer));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_its_mode_and_one_bridge() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("control.sock");
        let first = listen(&path, 0o620).expect("a socket");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o620);
        assert!(matches!(listen(&path, 0o600), Err(Failure::Failed(said)) if said.contains("is running")));
        // Of a bridge that was killed.
        drop(first);
        assert!(listen(&path, 0o600).is_ok());
        let file = directory.path().join("file");
        fs::write(&file, "kept").expect("a file");
        assert!(listen(&file, 0o600).is_err());
        assert_eq!(fs::read(&file).expect("a file"), b"kept");
    }

    #[test]
    fn a_name_is_no_path() {
        for wrong in ["", "a/b", "..", ".x", "a b"] {
            assert!(usual_place(wrong).is_err(), "{wrong}");
        }
    }
}
