from cortex.demo.script_echo import echo as inspect
