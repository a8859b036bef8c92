//! The packages that a program needs, by what it imports: a program without a list of its own declares these.

use crate::dialect::{Import, Inspection, Language, stdlib};

use super::MAX_DEPENDENCIES;

/// Python modules whose package has another name. The first package of a module is the one declared.
const PYTHON_PACKAGES: &[(&str, &str)] = &[
    ("Crypto", "pycryptodome"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyOpenSSL"),
    ("PIL", "Pillow"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("cv2", "opencv-python"),
    ("dateutil", "python-dateutil"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("fitz", "PyMuPDF"),
    ("git", "GitPython"),
    ("google", "protobuf"),
    ("googleapiclient", "google-api-python-client"),
    ("jose", "python-jose"),
    ("jwt", "PyJWT"),
    ("ldap", "python-ldap"),
    ("magic", "python-magic"),
    ("markdown", "Markdown"),
    ("mpl_toolkits", "matplotlib"),
    ("nacl", "PyNaCl"),
    ("pdfminer", "pdfminer.six"),
    ("pptx", "python-pptx"),
    ("psycopg2", "psycopg2-binary"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("slugify", "python-slugify"),
    ("telegram", "python-telegram-bot"),
    ("usb", "pyusb"),
    ("win32api", "pywin32"),
    ("yaml", "PyYAML"),
    ("zmq", "pyzmq"),
];

/// Ruby features whose gem has another name, by their first directory.
const RUBY_GEMS: &[(&str, &str)] = &[
    ("action_view", "actionview"),
    ("active_model", "activemodel"),
    ("active_record", "activerecord"),
    ("active_support", "activesupport"),
    ("concurrent", "concurrent-ruby"),
    ("google/protobuf", "google-protobuf"),
    ("rack/test", "rack-test"),
    ("zip", "rubyzip"),
];

/// First directories of Ruby features that several gems share: `net/ssh` is of the gem `net-ssh`.
const SHARED_DIRECTORIES: [&str; 4] = ["net", "io", "tty", "google"];

/// The packages that provide what a program imports, each once, in the order of the imports. Optional
/// imports need none.
pub fn imported_packages(language: Language, inspection: &Inspection) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    for import in &inspection.imports {
        if import.optional || stdlib::provides(language, &import.module) {
            continue;
        }
        let package = match language {
            Language::Python => python_package(import.top_level()),
            Language::Ruby => ruby_gem(import),
        };
        let is_new = |package: &String| {
            !package.is_empty()
                && !stdlib::ships(language, package)
                && !packages.iter().any(|known| known.eq_ignore_ascii_case(package))
        };
        if let Some(package) = package.filter(is_new) {
            packages.push(package);
        }
    }
    packages.truncate(MAX_DEPENDENCIES);
    packages
}

/// The module that a wanted package provides, if it has another name than the package.
pub(crate) fn module_of_package(is_wanted: impl Fn(&str) -> bool) -> Option<&'static str> {
    let mut known = PYTHON_PACKAGES.iter().chain(RUBY_GEMS);
    known.find(|(_, package)| is_wanted(package)).map(|(module, _)| *module)
}

/// `None`: a relative import, of the program's own folder.
fn python_package(module: &str) -> Option<String> {
    if module.is_empty() {
        return None;
    }
    let known = PYTHON_PACKAGES.iter().find(|(name, _)| *name == module);
    Some(known.map_or_else(|| module.replace('_', "-"), |(_, package)| (*package).to_owned()))
}

fn ruby_gem(import: &Import) -> Option<String> {
    let feature = import.module.trim_end_matches(".rb");
    if feature.starts_with(['.', '/', '~']) {
        return None;
    }
    let is_in = |name: &str| {
        feature.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some((_, gem)) = RUBY_GEMS.iter().find(|(name, _)| is_in(name)) {
        return Some((*gem).to_owned());
    }
    let top = import.top_level();
    Some(if SHARED_DIRECTORIES.contains(&top) { feature.replace('/', "-") } else { top.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::inspect;

    #[test]
    fn imports_name_their_packages() {
        use Language::{Python, Ruby};
        for (language, source, expected) in [
            (Python, "import json, os.path\nfrom datetime import date", &[][..]),
            (Python, "import yaml\nfrom yaml import safe_load", &["PyYAML"]),
            (
                Python,
                "from bs4 import BeautifulSoup\nfrom PIL import Image",
                &["beautifulsoup4", "Pillow"],
            ),
            (Python, "import numpy as np\nimport numpy.linalg", &["numpy"]),
            (Python, "def f():\n    import requests\n    return requests", &["requests"]),
            (Python, "try:\n    import lxml\nexcept ImportError:\n    lxml = None", &[]),
            (Python, "from . import helper", &[]),
            (Ruby, "require 'json'\nrequire 'net/http'", &[]),
            (Ruby, "require 'active_support/all'\nrequire 'zip'", &["activesupport", "rubyzip"]),
            (Ruby, "require 'net/ssh'\nrequire 'prawn/table'", &["net-ssh", "prawn"]),
            (Ruby, "require './helper'\nrequire_relative 'other'", &[]),
        ] {
            let found = imported_packages(language, &inspect(language, source).unwrap());
            assert_eq!(found, expected, "{source}");
        }
    }
}
