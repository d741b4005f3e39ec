//! POST and PUT: the content is counted and hashed, and stored if uploads are enabled.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::task::block_in_place;

use super::body::Body;
use super::directory::{Directory, Provisional};
use super::{plain, with_data};

/// The name of an upload without a name in its path.
const NAMELESS: &str = "upload";

/// Reads the content of a request and answers with its length and its SHA-256.
pub async fn respond(store: Option<&Directory>, request: Request<Incoming>) -> Response<Body> {
    let Some(name) = name(request.uri().path()) else {
        return plain(StatusCode::BAD_REQUEST, "an upload's name is one that a file may have, and not hidden\n");
    };
    let mut file = match store.map(|store| store.create(&name)).transpose() {
        Ok(file) => file,
        Err(error) => return refusal(error),
    };
    let mut body = request.into_body();
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return plain(StatusCode::BAD_REQUEST, "the content ended before its end\n");
        };
        let Ok(data) = frame.into_data() else { continue };
        hash.update(&data);
        bytes += data.len() as u64;
        if let Some(file) = &mut file
            && let Err(error) = block_in_place(|| file.write(&data))
        {
            return refusal(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }
    finish(file, &name, bytes, &hex(&hash.finalize()))
}

fn finish(file: Option<Provisional<'_>>, name: &str, bytes: u64, sha256: &str) -> Response<Body> {
    let stored = file.is_some().then_some(name);
    if let Some(Err(error)) = file.map(|file| block_in_place(|| file.keep())) {
        return refusal(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    let answer = serde_json::json!({ "bytes": bytes, "sha256": sha256, "stored": stored });
    let status = if stored.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    with_data(status, "application/json", format!("{answer}\n"))
}

/// The last part of a path, if it is an allowed file name.
fn name(path: &str) -> Option<String> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let name = percent_decode_str(last).decode_utf8().ok()?.into_owned();
    if name.is_empty() {
        return Some(NAMELESS.to_owned());
    }
    let unfit = name.starts_with('.') || name.len() > 255 || name.contains(['/', '\0']);
    (!unfit).then_some(name)
}

fn refusal(error: Errno) -> Response<Body> {
    match error {
        Errno::NOSPC | Errno::DQUOT => plain(StatusCode::INSUFFICIENT_STORAGE, "the server's disk is full\n"),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => plain(StatusCode::FORBIDDEN, "the server may not write there\n"),
        other => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{other}\n")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        assert_eq!(name("/a/b%20c"), Some("b c".to_owned()));
        assert_eq!(name("/"), Some("upload".to_owned()));
        assert_eq!(name("/a/"), Some("upload".to_owned()));
        for unfit in ["/.hidden", "/..", "/a%2f..%2fb", "/a%00", "/%ff"] {
            assert_eq!(name(unfit), None, "{unfit}");
        }
    }

    #[test]
    fn bytes_are_written_in_hexadecimal() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
