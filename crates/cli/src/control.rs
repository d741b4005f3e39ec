//! The control socket of a process that runs until Ctrl-C (a bridge, a service, a relay): a request is one line of
//! JSON, and so is the answer.
//!
//! The permissions of the socket decide which users may change the process; they are set before a client can connect. A
//! socket that a killed process has left behind is replaced, unless a process answers on it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::Failure;

/// The kind of a process with a control socket, as messages describe it.
pub struct Kind {
    /// Its name: `bridge`. Part of the socket's name.
    pub what: &'static str,
    /// The command that starts one with a control socket.
    pub start: &'static str,
}

/// The options for the control socket of a new process.
#[derive(ClapArgs)]
pub struct ControlMode {
    /// Permissions of the control socket, in octal: they decide which users may show and change the process
    #[arg(long = "mode", value_name = "MODE", default_value = "600", value_parser = octal)]
    pub mode: u32,
}

/// The permissions of a socket.
///
/// # Errors
/// A sentence for the user.
pub fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is not a mode: use octal digits, as in 660"))
}

/// Time limit for a client to send its request, and for the process to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a request.
const MOST_BYTES: u64 = 1 << 16;

/// The path of the control socket of a process of this kind and name: in the user's runtime directory, or in /run for
/// root.
///
/// # Errors
/// There is no such directory, or the name is not one.
pub fn usual_place(kind: &Kind, name: &str) -> Result<PathBuf, Failure> {
    check_name(kind, name).map_err(Failure::Usage)?;
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        _ => {
            return Err(Failure::Usage(
                "there is no XDG_RUNTIME_DIR for the control socket: choose its path with --control".to_owned(),
            ));
        }
    };
    Ok(directory.join(format!("heddle-{}-{name}.sock", kind.what)))
}

/// Checks that `name` is a valid name and not a path.
///
/// # Errors
/// A sentence for the user.
pub fn check_name(kind: &Kind, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("`{name}` is not a name of a {}: use letters, digits, - and _", kind.what));
    }
    Ok(())
}

/// Opens the socket for a process that starts. It is made in a directory that only this user may enter, and moved to its
/// place once it has its permissions.
///
/// # Errors
/// Another process answers there, or the place cannot be written to.
pub fn listen(kind: &Kind, path: &Path, mode: u32) -> Result<ControlSocket, Failure> {
    let failed = |error: io::Error| {
        Failure::Failed(format!(
            "cannot make the control socket {}: {error}; choose another path with --control",
            path.display()
        ))
    };
    if UnixStream::connect(path).is_ok() {
        return Err(Failure::Failed(format!(
            "a {} is running with the control socket {}; choose another --name",
            kind.what,
            path.display()
        )));
    }
    // If no process answers on the socket, its process was killed.
    if fs::symlink_metadata(path).is_ok_and(|there| !is_socket(&there)) {
        return Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    let directory = path.with_extension(format!("{}.new", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
    let made = make(&directory.join("s"), path, mode);
    // The directory is empty by now, unless an error is being reported.
    let _ = fs::remove_dir_all(&directory);
    let listener = made.map_err(failed)?;
    Ok(ControlSocket { listener: Some(listener), path: path.to_owned() })
}

/// An open control socket. It is removed when this is dropped.
pub struct ControlSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl ControlSocket {
    /// Answers clients, one after the other, on a thread that ends with the process.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn answer_by<R: DeserializeOwned>(
        &mut self,
        answer: impl Fn(R) -> Result<Value, String> + Send + 'static,
    ) -> Result<(), Failure> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let thread = std::thread::Builder::new().name("heddle-control".to_owned());
        let started = thread.spawn(move || serve(&listener, answer));
        let refused = |error| Failure::Failed(format!("cannot start a thread: {error}; raise the limit (`ulimit -u`)"));
        started.map(drop).map_err(refused)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The socket may have been removed by hand, or the user of --user may not remove it.
        let _ = fs::remove_file(&self.path);
    }
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
fn serve<R: DeserializeOwned>(listener: &UnixListener, answer: impl Fn(R) -> Result<Value, String>) {
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        // A client that goes away gets no answer.
        let _ = serve_one(&client, &answer);
    }
}

fn serve_one<R: DeserializeOwned>(
    mut client: &UnixStream,
    answer: &impl Fn(R) -> Result<Value, String>,
) -> io::Result<()> {
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

/// Asks a running process.
///
/// # Errors
/// No process answers there, the user may not connect to it, or it refuses the request.
pub fn ask(kind: &Kind, path: &Path, request: &impl Serialize) -> Result<Value, Failure> {
    let (shown, Kind { what, start }) = (path.display(), kind);
    let client = UnixStream::connect(path).map_err(|error| {
        Failure::Failed(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("you may not use the control socket {shown}: run as its owner, or start the {what} with --mode")
            }
            _ => format!("no {what} answers at {shown}: {error}; start one with `{start}`, or name it with --name"),
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
        asked().map_err(|error| Failure::Failed(format!("the {what} at {shown} gave no answer: {error}")))?;
    match reply.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::Failed(error.to_owned())),
        None => Ok(reply["ok"].take()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { what: "bridge", start: "heddle bridge run" };

    #[test]
    fn a_socket_has_its_mode_and_one_bridge() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("control.sock");
        let mut first = listen(&KIND, &path, 0o620).expect("a socket");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o620);
        assert!(matches!(listen(&KIND, &path, 0o600), Err(Failure::Failed(said)) if said.contains("is running")));
        // The socket of a process that was killed.
        drop(first.listener.take());
        std::mem::forget(first);
        drop(listen(&KIND, &path, 0o600).expect("it is replaced"));
        assert!(!path.exists(), "it is removed at the end");
        let file = directory.path().join("file");
        fs::write(&file, "kept").expect("a file");
        assert!(listen(&KIND, &file, 0o600).is_err());
        assert_eq!(fs::read(&file).expect("a file"), b"kept");
    }

    #[test]
    fn a_name_is_no_path() {
        for wrong in ["", "a/b", "..", ".x", "a b"] {
            assert!(usual_place(&KIND, wrong).is_err(), "{wrong}");
        }
    }
}
