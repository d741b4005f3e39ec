//! How a command gives up root once its interface is open (`--user`).
//!
//! The system calls change the calling thread only, so this runs before any other thread is started, and checks all
//! threads of the process afterwards. The kernel requires this order: first the bounding set and the groups, while the
//! process still has the right to change them; then the group; then the user, which clears the capabilities of root.

use std::fs;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::failure::Failure;

/// The capabilities that may exist, as bit numbers of 64 bits. The kernel refuses numbers beyond its last capability.
const CAPABILITIES: u32 = 64;

/// How long /proc may still list threads that have ended.
const LISTED_AFTER_THE_END: Duration = Duration::from_secs(10);

/// The user to become, as `--user` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let group = fs::read_to_string("/etc/group").unwrap_or_default();
        parse(text, &passwd, &group)
    }
}

/// Reads `NAME`, `UID` or either with `:GID` or `:GROUP`, with the help of these files.
fn parse(text: &str, passwd: &str, group: &str) -> Result<User, String> {
    let (user, given) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let entry = |wanted: &str, field: usize| -> Option<(u32, u32)> {
        let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = lines.find(|fields| fields.get(field) == Some(&wanted))?;
        Some((line.get(2)?.parse().ok()?, line.get(3)?.parse().ok()?))
    };
    let (uid, own_gid) = match user.parse::<u32>() {
        Ok(uid) => (uid, entry(user, 2).map(|(_, gid)| gid)),
        Err(_) => match entry(user, 0) {
            Some((uid, gid)) => (uid, Some(gid)),
            None => {
                return Err(format!("there is no user {user:?} in /etc/passwd: give a name from there, or UID:GID"));
            }
        },
    };
    let gid = match given {
        Some(given) => given.parse().ok().or_else(|| {
            let mut lines = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
            lines.find(|fields| fields.first() == Some(&given)).and_then(|fields| fields.get(2)?.parse().ok())
        }),
        None => own_gid,
    };
    let gid = gid.ok_or_else(|| format!("{text:?} does not determine a group: write UID:GID, such as 65534:65534"))?;
    if uid == 0 || gid == 0 || uid == u32::MAX || gid == u32::MAX {
        return Err(format!("{text:?} would keep the rights of root: name another user and group, such as `nobody`"));
    }
    Ok(User { uid, gid })
}

impl User {
    /// Becomes this user, irrevocably: no groups, no capabilities, neither for this process nor for programs it starts.
    ///
    /// # Errors
    /// The process is not root, or it has kept some privilege.
    pub fn become_it(self) -> Result<(), Failure> {
        self.change().map_err(|(doing, error)| {
            Failure::Failed(format!(
                "--user: {doing} failed ({error}): start as root (with the capabilities CAP_SETUID, CAP_SETGID and \
                 CAP_SETPCAP), or leave --user out"
            ))
        })?;
        self.verify()
            .map_err(|kept| Failure::Failed(format!("--user: the rights of root were not dropped completely: {kept}")))
    }

    fn change(self) -> Result<(), (&'static str, io::Error)> {
        let what = |doing| move |error: rustix::io::Errno| (doing, io::Error::from(error));
        // First the steps that need a privilege, then those that remove it.
        for number in 0..CAPABILITIES {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(rustix::io::Errno::INVAL) => break,
                Err(error) => return Err(what("emptying the capability bounding set")(error)),
            }
        }
        clear_ambient_capability_set().map_err(what("clearing the ambient capabilities"))?;
        set_thread_groups(&[]).map_err(what("leaving the groups of root"))?;
        let gid = Gid::from_raw(self.gid);
        set_thread_res_gid(gid, gid, gid).map_err(what("changing the group"))?;
        let uid = Uid::from_raw(self.uid);
        set_thread_res_uid(uid, uid, uid).map_err(what("changing the user"))?;
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).map_err(what("dropping the capabilities"))?;
        set_no_new_privs(true).map_err(what("refusing new privileges"))
    }

    /// Checks the privileges of every thread of the process. The error names a remaining one. A thread that has ended
    /// may be listed for a moment, with its former privileges, so the list is read again for a while.
    fn verify(self) -> Result<(), String> {
        let start = Instant::now();
        while let Err(kept) = self.verify_threads() {
            if start.elapsed() > LISTED_AFTER_THE_END {
                return Err(kept);
            }
            std::thread::yield_now();
        }
        match set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT) {
            Ok(()) => Err("the process can become root again".to_owned()),
            Err(_) => Ok(()),
        }
    }

    fn verify_threads(self) -> Result<(), String> {
        let threads = fs::read_dir("/proc/self/task").map_err(|error| format!("/proc cannot be read ({error})"))?;
        for thread in threads {
            let path = thread.map_err(|error| error.to_string())?.path().join("status");
            let status = fs::read_to_string(path).map_err(|error| format!("a thread cannot be checked ({error})"))?;
            self.verify_status(&status)?;
        }
        Ok(())
    }

    fn verify_status(self, status: &str) -> Result<(), String> {
        let of = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
        };
        let four = |id: u32| vec![id.to_string(); 4].join(" ");
        let none = "0000000000000000";
        let expected = [
            ("Uid", four(self.uid)),
            ("Gid", four(self.gid)),
            ("Groups", String::new()),
            ("CapInh", none.to_owned()),
            ("CapPrm", none.to_owned()),
            ("CapEff", none.to_owned()),
            ("CapBnd", none.to_owned()),
            ("CapAmb", none.to_owned()),
            ("NoNewPrivs", "1".to_owned()),
        ];
        match expected.into_iter().find(|(name, expected)| of(name) != *expected) {
            Some((name, expected)) => Err(format!("{name} is {:?} and not {expected:?}", of(name))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:34::/var/www:/bin/false\nbad:x:\n";
    const GROUP: &str = "root:x:0:\nweb:x:80:www\n";

    #[test]
    fn users_are_named_or_numbered() {
        let read = |text: &str| parse(text, PASSWD, GROUP).map(|user| (user.uid, user.gid));
        assert_eq!(read("www"), Ok((33, 34)));
        assert_eq!(read("33"), Ok((33, 34)), "the group of that user");
        assert_eq!(read("www:80"), Ok((33, 80)));
        assert_eq!(read("1234:web"), Ok((1234, 80)));
        assert_eq!(read("1234:5"), Ok((1234, 5)));
        for (wrong, remedy) in [
            ("nothere", "/etc/passwd"),
            ("", "/etc/passwd"),
            ("bad", "/etc/passwd"),
            ("1234", "UID:GID"),
            ("www:nothere", "UID:GID"),
            ("root", "nobody"),
            ("0:5", "nobody"),
            ("5:0", "nobody"),
            ("4294967295:5", "nobody"),
        ] {
            let said = read(wrong).unwrap_err();
            assert!(said.contains(remedy), "{wrong:?}: {said}");
        }
    }

    #[test]
    fn what_is_left_is_named() {
        let user = User { uid: 33, gid: 34 };
        let none = "0000000000000000";
        let good = format!(
            "Uid:\t33\t33\t33\t33\nGid:\t34\t34\t34\t34\nGroups:\t \nCapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\n\
             CapBnd:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n"
        );
        assert_eq!(user.verify_status(&good), Ok(()));
        for (from, to, named) in [
            ("33\t33\nGid", "0\t33\nGid", "Uid"),
            ("Groups:\t ", "Groups:\t0 ", "Groups"),
            ("CapBnd:\t0", "CapBnd:\t1", "CapBnd"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "NoNewPrivs"),
            ("CapEff", "CapOth", "CapEff"),
        ] {
            let said = user.verify_status(&good.replace(from, to)).unwrap_err();
            assert!(said.starts_with(named), "{said}");
        }
    }
}
