# shellcheck shell=bash
# bash completion for scope-profiler. The program itself says what could stand next (python/scope_profiler/cli/complete.py).

_scope_profiler()
{
    local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} prefix='' line suffix name
    local -a words=() files=()
    local i
    # readline splits words at "=": --option = value.
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == "=" && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+="="
        elif [[ ${#words[@]} -gt 0 && ${words[${#words[@]} - 1]} == --*= ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    if [[ $current == "=" && ${#words[@]} -gt 0 ]]; then
        prefix=${words[${#words[@]} - 1]}= current=''
        unset "words[${#words[@]} - 1]"
    elif [[ ${#words[@]} -gt 0 && ${words[${#words[@]} - 1]} == --*= ]]; then
        prefix=${words[${#words[@]} - 1]}
        unset "words[${#words[@]} - 1]"
    fi
    case $program in \~/*) program=$HOME/${program:2} ;; esac
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files*)
                compopt -o filenames 2>/dev/null
                local typed=$current
                case $typed in \~/*) typed=$HOME/${typed:2} ;; esac
                typed=${typed//\\/}
                typed=${typed#[\"\']}
                files=()
                while IFS= read -r name; do
                    if [[ -d $name || $line == ":files" ]]; then
                        files+=("$name")
                        continue
                    fi
                    for suffix in ${line#:files}; do
                        [[ $name != *"$suffix" ]] || files+=("$name")
                    done
                done < <(compgen -f -- "$typed")
                COMPREPLY+=("${files[@]}")
                ;;
            *)
                line=${line%%$'\t'*}
                COMPREPLY+=("${line#"$prefix"}")
                ;;
        esac
    done < <("$program" __complete "${words[@]}" "$prefix$current" 2>/dev/null || printf ':files\n')
}

complete -F _scope_profiler scope-profiler
