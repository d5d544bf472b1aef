//! The marks of consumers: one small file each, replaced as a whole.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    SpoolError,
    disk::Disk,
    format::{FORMAT, Layout, now_us, rfc3339},
};

/// A consumer's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The consumer's name.
    pub name: String,
    /// Every event below this position is done with.
    pub committed: u64,
    /// When the mark was written, RFC 3339 in UTC.
    pub updated: String,
}

/// All marks, by name.
pub(crate) fn list(layout: &Layout) -> Result<Vec<Mark>, SpoolError> {
    let dir = layout.consumers();
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SpoolError::io("list", &dir, error)),
    };
    let mut marks = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|error| SpoolError::io("list", &dir, error))?
            .file_name();
        let name = name.to_string_lossy();
        if let Some(name) = name.strip_suffix(".json") {
            marks.extend(read(&dir.join(format!("{name}.json")), name)?);
        }
    }
    marks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(marks)
}

fn read(path: &Path, name: &str) -> Result<Option<Mark>, SpoolError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        // Removed since it was listed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SpoolError::io("read", path, error)),
    };
    let value: Value = serde_json::from_slice(&text)
        .map_err(|error| SpoolError::corrupt(path, error.to_string()))?;
    let committed = value["committed"].as_u64();
    let committed = committed.ok_or_else(|| SpoolError::corrupt(path, "it holds no position"))?;
    let updated = value["updated"].as_str().unwrap_or_default().to_owned();
    Ok(Some(Mark {
        name: name.to_owned(),
        committed,
        updated,
    }))
}

/// Replaces a mark; durable when it returns.
pub(crate) fn commit(
    disk: &mut dyn Disk,
    layout: &Layout,
    uuid: &str,
    name: &str,
    position: u64,
) -> Result<(), SpoolError> {
    check_name(name)?;
    let path = layout.consumers().join(format!("{name}.json"));
    if let Some(before) = read(&path, name)?
        && before.committed > position
    {
        tracing::warn!(
            consumer = name,
            from = before.committed,
            to = position,
            "a mark goes back"
        );
    }
    let value = json!({
        "format": FORMAT,
        "uuid": uuid,
        "committed": position,
        "updated": rfc3339(now_us()),
    });
    // Two processes that commit at once must not share a temporary file.
    let temporary = layout
        .consumers()
        .join(format!(".{name}.{}.tmp", std::process::id()));
    replace(disk, &path, &temporary, format!("{value}\n").as_bytes())
}

/// Forgets a consumer; whether there was one.
pub(crate) fn remove(disk: &mut dyn Disk, layout: &Layout, name: &str) -> Result<bool, SpoolError> {
    check_name(name)?;
    let dir = layout.consumers();
    let path = dir.join(format!("{name}.json"));
    let was_there = disk.remove(&path)?;
    if was_there {
        disk.sync_dir(&dir)?;
    }
    Ok(was_there)
}

/// Replaces a small file as a whole: written beside it, synced, renamed, the directory synced.
pub(crate) fn replace(
    disk: &mut dyn Disk,
    path: &Path,
    temporary: &Path,
    bytes: &[u8],
) -> Result<(), SpoolError> {
    let _ = disk.remove(temporary);
    let file = disk.create(temporary)?;
    disk.write(&file, temporary, &[bytes])?;
    disk.sync(&file, temporary)?;
    disk.rename(temporary, path)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

fn check_name(name: &str) -> Result<(), SpoolError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        return Err(SpoolError::Name {
            name: name.to_owned(),
        });
    }
    Ok(())
}
