# fish completion for scope-profiler. The program itself says what could stand next (python/scope_profiler/cli/complete.py).

function __scope_profiler_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program scope-profiler
    string match -q '*/*' -- $words[1]; and set program (string replace -r '^~' $HOME -- $words[1])
    set -l answer (command $program __complete $words[2..-1] "$current" 2>/dev/null; or echo :files)
    for line in $answer
        if not string match -q ':files*' -- $line
            echo $line
            continue
        end
        set -l prefix (string match -r '^--[^=]*=' -- $current)
        set -l suffixes (string split -n ' ' -- (string replace ':files' '' -- $line))
        for name in (__fish_complete_path (string replace -r '^--[^=]*=' '' -- $current) | string replace -r '\t.*' '')
            set -l wanted no
            if test (count $suffixes) -eq 0; or string match -q '*/' -- $name
                set wanted yes
            end
            for suffix in $suffixes
                string match -q "*$suffix" -- $name; and set wanted yes
            end
            test $wanted = yes; and echo "$prefix$name"
        end
    end
end

complete -c scope-profiler -f -a '(__scope_profiler_complete)'
