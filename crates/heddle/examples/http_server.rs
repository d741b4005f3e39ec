//! A static file server: hyper on top of `heddle::tokio`, one thread.
//!
//! ```text
//! cargo run --example http_server -- --root docs
//! cargo run --example http_server -- --root docs --tap tap0 --addr 10.9.0.2/24    # then: curl http://10.9.0.2/
//! ```

mod ends;

use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use clap::Parser;
use ends::Ends;
use heddle::Stack;
use heddle::tokio::{TcpListener, TcpStream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// Bytes of a file that are read at a time.
const PIECE: usize = 64 << 10;

#[derive(Parser)]
#[command(about = "HTTP/1.1 server for the files of a directory")]
struct Arguments {
    #[command(flatten)]
    place: ends::Place,
    /// Directory to serve
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    root: PathBuf,
    /// Port of the server
    #[arg(long, default_value_t = 80)]
    port: u16,
    /// Over memory: the paths that the client requests
    #[arg(default_values_t = ["/".to_owned(), "/no-such-file".to_owned()])]
    paths: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let root: Rc<Path> = arguments.root.canonicalize()?.into();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = tokio::task::LocalSet::new();
    match arguments.place.open()? {
        Ends::Memory { server, client } => {
            let address = ends::memory_address(arguments.port);
            let listener = TcpListener::bind(&server, address)?;
            println!("server: {} at http://{address}/", root.display());
            tasks.spawn_local(serve(listener, root));
            tasks.block_on(&runtime, fetch(&client, address, &arguments.paths))
        }
        Ends::Tap { stack, address } => {
            let address = SocketAddr::new(address, arguments.port);
            let listener = TcpListener::bind(&stack, address)?;
            println!("server: {} at http://{address}/, stop with Ctrl-C", root.display());
            tasks.block_on(&runtime, serve(listener, root));
            Ok(())
        }
    }
}

/// Accepts connections for ever, each with its own task.
async fn serve(listener: TcpListener, root: Rc<Path>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else { return };
        let root = root.clone();
        tokio::task::spawn_local(async move {
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let response = answer(&root, request.uri().path());
                println!("server: {peer} {} {}: {}", request.method(), request.uri().path(), response.status());
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                println!("server: {peer}: {error}");
            }
        });
    }
}

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

/// A file, the names in a directory, or an error.
fn answer(root: &Path, path: &str) -> Answer {
    let found = root.join(path.trim_start_matches('/')).canonicalize();
    // Resolved before it is compared, so that `..` and symbolic links cannot leave the root.
    match found {
        Ok(found) if !found.starts_with(root) => text(StatusCode::FORBIDDEN, "outside of what is served\n".to_owned()),
        Ok(found) if found.is_dir() => text(StatusCode::OK, names(&found)),
        Ok(found) => match FileBody::open(&found) {
            Ok(body) => Response::new(body.boxed()),
            Err(error) => text(StatusCode::FORBIDDEN, format!("{path}: {error}\n")),
        },
        Err(error) => text(StatusCode::NOT_FOUND, format!("{path}: {error}\n")),
    }
}

fn text(status: StatusCode, text: String) -> Answer {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

fn names(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned() + "\n").collect();
    names.sort();
    names.concat()
}

/// A file as a body, read piece by piece as the connection accepts it.
struct FileBody {
    file: File,
    left: u64,
}

impl FileBody {
    fn open(path: &Path) -> std::io::Result<FileBody> {
        let file = File::open(path)?;
        let left = file.metadata()?.len();
        Ok(FileBody { file, left })
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; PIECE.min(self.left as usize)];
        let read = self.file.read_exact(&mut piece);
        self.left -= piece.len() as u64;
        Poll::Ready(Some(read.map(|()| Frame::data(Bytes::from(piece)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The client: requests each path on one connection.
async fn fetch(stack: &Stack, address: SocketAddr, paths: &[String]) -> Result<(), Box<dyn Error>> {
    let stream = TcpStream::connect(stack, address).await?;
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    for path in paths {
        let request = Request::get(path).header("host", address.to_string()).body(Empty::<Bytes>::new())?;
        let response = requests.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("client: GET {path}: {status}, {} bytes", body.len());
    }
    Ok(())
}
