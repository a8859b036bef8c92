"""The programs that the model of `scripts/soak` writes, by method."""

PYTHON = {
    "add": "def add(a, b):\n    return a + b",
    "bump": "context['n'] = context.get('n', 0) + 1\nresult = context['n']",
    "plan": "def plan(x):\n    return delegate('helper', purpose='double a number').twice(x).value + 1",
    "twice": "def twice(x):\n    return x * 2",
    "login": "def login(password):\n    print('using', password)\n    return len(password)",
    "reveal": "def reveal(password):\n    raise ValueError('cannot log in with password=' + password)",
    "fetch": "import urllib.request\ndef fetch(url):\n    with urllib.request.urlopen(url, timeout=20) as page:\n        return page.read().decode()",
    "spin": "while True:\n    pass",
    "daemon": "import os, time\ndef daemon():\n    divide = getattr(os, 'fo' + 'rk')\n    if divide() == 0:\n        getattr(os, 'set' + 'sid')()\n        if divide() == 0:\n            time.sleep(900)\n        os._exit(0)\n    return 1",
    "crash": "import os\ndef crash():\n    os._exit(7)",
    "planted": "def planted(a, b):\n    return a - b",
}
RUBY = {
    "add": "def add(a, b)\n  a + b\nend",
    "bump": "context[:n] = (context[:n] || 0) + 1\ncontext[:n]",
    "plan": "def plan(x)\n  delegate('helper', purpose: 'double a number').twice(x).value + 1\nend",
    "twice": "def twice(x)\n  x * 2\nend",
    "login": "def login(password:)\n  puts \"using #{password}\"\n  password.length\nend",
    "reveal": "def reveal(password:)\n  raise ArgumentError, \"cannot log in with password=#{password}\"\nend",
    "fetch": "require 'net/http'\ndef fetch(url)\n  Net::HTTP.get(URI(url))\nend",
    "spin": "loop {}",
    "daemon": "def daemon\n  divide = Process.method('fo' + 'rk')\n  divide.call { Process.method('set' + 'sid').call; divide.call { sleep 900 }; exit!(0) }\n  1\nend",
    "crash": "def crash\n  exit!(7)\nend",
}
