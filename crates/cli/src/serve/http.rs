//! HTTP/1.1 on our streams: hyper reads requests and writes responses, the files are ours.
//!
//! One task per connection. Reading a file blocks that task's worker for the time of the page cache, some microseconds
//! for a piece; passing each piece to another thread would cost more.

mod body;
mod directory;
mod files;
mod host;
mod range;
mod upload;
mod wire;

use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use heddle::Stack;
use heddle::tokio::TcpStream;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, SERVER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

use crate::failure::Failure;

use self::body::{Body, PieceLimit, SharedPieces};
use self::directory::Directory;
use self::wire::HttpStream;
use super::totals::Totals;

/// Time for a client to send a request's header, or its next request, before its connection is closed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The directory that is served, and optionally one for uploads.
pub struct Site {
    root: Directory,
    upload: Option<Directory>,
    verbose: bool,
    totals: Arc<Totals>,
    pieces: Arc<PieceLimit>,
}

impl Site {
    /// Opens the directories.
    ///
    /// # Errors
    /// One is not a directory, or cannot be read.
    pub fn open(root: &Path, upload: Option<&Path>, verbose: bool, totals: Arc<Totals>) -> Result<Site, Failure> {
        let root = Directory::open(root)?;
        let upload = upload.map(Directory::open).transpose()?;
        Ok(Site { root, upload, verbose, totals, pieces: PieceLimit::of_process() })
    }

    /// Adapts the pieces of files to `stack`. Its limit of memory for buffers (`tcp_mem`) counts only a part of a
    /// piece. So if the limit was set, pieces are as short as in a process whose memory results in that limit.
    pub fn served_by(&self, stack: &Stack) {
        const PAGE: u64 = 4096;
        // The third number is the limit in pages, by default 3/32 of the memory; 0 means no limit.
        let limits = stack.knob("tcp_mem").unwrap_or_default();
        let limit = limits.split_whitespace().nth(2).and_then(|pages| pages.parse::<u64>().ok());
        if let Some(pages) = limit.filter(|pages| *pages > 0) {
            self.pieces.lower(pages.saturating_mul(PAGE).saturating_mul(32) / 3);
        }
    }
}

/// Serves one connection until the client ends, fails, or the service is `quitting`: then the present response is
/// finished first.
pub async fn connection(stream: TcpStream, site: Arc<Site>, mut quitting: watch::Receiver<()>) {
    let pieces = SharedPieces::new(&site.pieces);
    let totals = site.totals.clone();
    let service = {
        let pieces = pieces.clone();
        service_fn(move |request| {
            let (site, pieces) = (site.clone(), pieces.clone());
            async move { Ok::<_, Infallible>(respond(&site, request, &pieces).await) }
        })
    };
    // An error means that the connection has failed already; the first read will report it.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(HttpStream::new(stream, pieces));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).half_close(true);
    let mut serving = pin!(http.serve_connection(io, service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        // The sender is dropped: nothing is ever sent.
        _ = quitting.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if ended.is_err_and(|error| !error.is_timeout()) {
        totals.broke();
    }
}

async fn respond(site: &Site, request: Request<Incoming>, pieces: &SharedPieces) -> Response<Body> {
    let described = site.verbose.then(|| format!("{} {}", request.method(), request.uri()));
    let mut response = match host::check(request.version(), request.headers()) {
        Ok(()) => answer(site, request, pieces).await,
        Err(problem) => plain(StatusCode::BAD_REQUEST, problem),
    };
    response.headers_mut().insert(SERVER, HeaderValue::from_static("heddle"));
    let status = response.status();
    site.totals.answered(status.is_client_error() || status.is_server_error());
    if let Some(described) = described {
        eprintln!("{described} -> {}", status.as_u16());
    }
    response
}

async fn answer(site: &Site, request: Request<Incoming>, pieces: &SharedPieces) -> Response<Body> {
    match *request.method() {
        Method::GET | Method::HEAD => files::respond(&site.root, &request, pieces),
        Method::POST | Method::PUT => upload::respond(site.upload.as_ref(), request).await,
        Method::OPTIONS => allowed(StatusCode::NO_CONTENT),
        _ => allowed(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn allowed(status: StatusCode) -> Response<Body> {
    let mut response = plain(status, "this server knows GET, HEAD, POST and PUT\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS, POST, PUT"));
    response
}

/// A short text response.
fn plain(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    with_data(status, "text/plain; charset=utf-8", text.into())
}

/// A response with its content in memory. No content if the status forbids it.
fn with_data(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let text = if empty { String::new() } else { text };
    let length = text.len();
    let mut response = Response::new(Body::Left(Full::from(text)));
    *response.status_mut() = status;
    if !empty {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}
