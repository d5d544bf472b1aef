//! Errors and panics as the exception `ackline.spark.AcklineException`.

use std::any::Any;

use ackline_columns::TaskError;
use jni::errors::ErrorPolicy;
use jni::objects::{JString, JThrowable};
use jni::{Env, JValue, jni_sig, jni_str};

/// An error that is thrown in Java.
#[derive(Debug)]
pub(crate) struct Thrown {
    code: String,
    text: String,
}

/// Throws each error and each panic of a native method, which then returns its default.
pub(crate) struct Throw;

impl Thrown {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            text: text.into(),
        }
    }

    fn throw(&self, env: &mut Env<'_>) -> jni::errors::Result<()> {
        if env.exception_check() {
            // An exception of the JVM itself, such as a lack of memory.
            return Ok(());
        }
        let class = env.find_class(jni_str!("ackline/spark/AcklineException"))?;
        let code = JString::from_str(env, &self.code)?;
        let text = JString::from_str(env, &self.text)?;
        let made = env.new_object(
            class,
            jni_sig!("(Ljava/lang/String;Ljava/lang/String;)V"),
            &[JValue::Object(&code), JValue::Object(&text)],
        )?;
        let exception = JThrowable::cast_local(env, made)?;
        // The success of a throw is reported as an error.
        let _ = env.throw(exception);
        Ok(())
    }
}

impl From<TaskError> for Thrown {
    fn from(error: TaskError) -> Self {
        Self {
            code: error.code,
            text: error.text,
        }
    }
}

impl From<jni::errors::Error> for Thrown {
    fn from(error: jni::errors::Error) -> Self {
        Self::new("spark.jvm", error.to_string())
    }
}

impl<T: Default> ErrorPolicy<T, Thrown> for Throw {
    type Captures<'local: 'method, 'method> = ();

    fn on_error<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _captures: &mut (),
        error: Thrown,
    ) -> jni::errors::Result<T> {
        error.throw(env)?;
        Ok(T::default())
    }

    fn on_panic<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _captures: &mut (),
        panic: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = format!(
            "spool.panic: the reading ended by a defect of Ackline ({}): please report it",
            text.unwrap_or_default()
        );
        Thrown::new("spool.panic", text).throw(env)?;
        Ok(T::default())
    }
}
