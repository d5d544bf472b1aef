//! The native methods of the Java class `ackline.spark.Native`: the work of a task of Spark as record batches in memory.
//!
//! Each method throws `ackline.spark.AcklineException` for an error and for a panic, which never passes through C.

// The methods are found by their names, and an exported name is unsafe to Rust: no other symbol may have it. The
// package's name makes these unique.
#![allow(unsafe_code)]

mod handles;
mod layout;
mod lines;
mod thrown;

use ackline_columns::{Piece, Reading, Task};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray, JObjectArray, JString};
use jni::sys::{jint, jlong};

use thrown::{Throw, Thrown};

/// `static native long open(String reading, String[] wanted, String pieces, int threads)`: opens a task and returns
/// its handle.
///
/// `reading` is a [`Reading`] as JSON, `wanted` are the columns of its batches, `pieces` is a JSON array of [`Piece`],
/// and `threads` are the cores that the task has.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_open<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    reading: JString<'local>,
    wanted: JObjectArray<'local, JString<'local>>,
    pieces: JString<'local>,
    threads: jint,
) -> jlong {
    let outcome = env.with_env(|env| -> Result<jlong, Thrown> {
        lines::collect();
        let wrong = |error: serde_json::Error| Thrown::new("spark.jvm", error.to_string());
        let reading = reading.try_to_string(env)?;
        let reading: Reading = serde_json::from_str(&reading).map_err(wrong)?;
        let pieces = pieces.try_to_string(env)?;
        let pieces: Vec<Piece> = serde_json::from_str(&pieces).map_err(wrong)?;
        let mut names = Vec::new();
        for at in 0..wanted.len(env)? {
            let name = wanted.get_element(env, at)?;
            names.push(name.try_to_string(env)?);
        }
        let task = Task::open(ackline::layouts(), &reading, &names, pieces)?;
        let threads = usize::try_from(threads).unwrap_or_default();
        Ok(handles::keep(task.on_threads(threads)))
    });
    outcome.resolve::<Throw>()
}

/// `static native byte[] schema(long handle)`: the schema of the batches as a message of Arrow's IPC format.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_schema<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> JByteArray<'local> {
    let outcome = env.with_env(|env| -> Result<JByteArray<'local>, Thrown> {
        let schema = handles::with(handle, |open| open.schema())?;
        Ok(env.byte_array_from_slice(&schema)?)
    });
    outcome.resolve::<Throw>()
}

/// `static native long[] next(long handle)`: the layout of the next batch; `null` after the last.
///
/// Its numbers: rows; nodes, then length and count of nulls of each; buffers, then address and bytes of each. The
/// memory is valid until the next call for this handle.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_next<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> JLongArray<'local> {
    let outcome = env.with_env(|env| -> Result<JLongArray<'local>, Thrown> {
        let Some(numbers) = handles::with(handle, handles::Open::next)? else {
            return Ok(JLongArray::default());
        };
        let array = JLongArray::new(env, numbers.len())?;
        array.set_region(env, 0, &numbers)?;
        Ok(array)
    });
    outcome.resolve::<Throw>()
}

/// `static native long[] spent(long handle)`: bytes read, and nanoseconds for reading, for making events of blocks, and
/// for filling columns from payloads.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_spent<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> JLongArray<'local> {
    let outcome = env.with_env(|env| -> Result<JLongArray<'local>, Thrown> {
        let numbers = handles::with(handle, |open| Ok(open.spent()))?;
        let array = JLongArray::new(env, numbers.len())?;
        array.set_region(env, 0, &numbers)?;
        Ok(array)
    });
    outcome.resolve::<Throw>()
}

/// `static native void close(long handle)`: ends a task and frees its batch.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_close<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    let outcome = env.with_env(|_env| handles::end(handle));
    outcome.resolve::<Throw>();
}

/// `static native String lines()`: the log lines since the last call, one below the other; `null` if there are none.
#[unsafe(no_mangle)]
pub extern "system" fn Java_ackline_spark_Native_lines<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JString<'local> {
    let outcome = env.with_env(|env| -> Result<JString<'local>, Thrown> {
        Ok(match lines::take() {
            Some(text) => JString::from_str(env, text)?,
            None => JString::default(),
        })
    });
    outcome.resolve::<Throw>()
}
