!> Regions of Fortran programs: the module of scope-profiler.
!!
!!     use scope_profiler
!!     integer :: solve
!!     call sp_init("profile")              ! writes profile_rank00000.spt
!!     solve = sp_region("solve")
!!     call sp_begin(solve)
!!     ...
!!     call sp_end(solve)
!!     call sp_finalize()
!!
!! Everything may be called from any thread, of OpenMP too: each thread is a lane of its own. Recursion has no limit. Inside a
!! Python process that records, the regions join the run of Python, and no file of their own is written.
!!
!! Every procedure takes `stat` (one of the codes below) and `errmsg`, both optional. What goes wrong where neither is given is
!! told on the error unit, except that nothing is said where nothing is recorded. `sp_begin` and `sp_end` look no further then:
!! an end without its begin is counted, and stands in the metadata of the file.
!!
!! Link with -lscope_profiler.
module scope_profiler
   use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_int, c_int64_t, c_null_char, c_associated, c_ptr
   use, intrinsic :: iso_fortran_env, only: error_unit, int64
   implicit none
   private

   public :: sp_init, sp_finalize, sp_flush, sp_reset
   public :: sp_region, sp_begin, sp_end, sp_begin_name, sp_end_name
   public :: sp_num_calls, sp_now_ns, sp_is_active, sp_get_region_stats
   public :: sp_set_output_format, sp_set_thread_name, sp_set_metadata, sp_output_path

   !> Status codes. Up to 6 they are those of C; SP_ERR_DEPTH is of releases that had a limit of open calls.
   integer, parameter, public :: SP_OK = 0
   integer, parameter, public :: SP_ERR_INACTIVE = 1
   integer, parameter, public :: SP_ERR_NO_CLOCK = 2
   integer, parameter, public :: SP_ERR_NO_MEMORY = 3
   integer, parameter, public :: SP_ERR_IO = 4
   integer, parameter, public :: SP_ERR_UNMATCHED_END = 5
   integer, parameter, public :: SP_ERR_OPEN_SCOPES = 6
   integer, parameter, public :: SP_ERR_INVALID_ARGUMENT = 7
   integer, parameter, public :: SP_ERR_DEPTH = 8

   !> What is written: a trace (.spt), which is the default here, or HDF5 with the lanes of all threads.
   integer, parameter, public :: SP_OUTPUT_HDF5 = 0
   integer, parameter, public :: SP_OUTPUT_TRACE = 1

   !> Version of the traces that are written.
   integer, parameter, public :: SP_FORMAT_VERSION = 2

   !> Longer names of regions are cut.
   integer, parameter, public :: SP_MAX_NAME = 1024
   integer, parameter :: max_prefix = 512
   integer, parameter :: max_path = 4096

   !> The completed calls of a region. Times in nanoseconds; the minimum and the maximum are 0 where there are none.
   type, bind(c), public :: sp_region_stats
      integer(c_int64_t) :: calls = 0
      integer(c_int64_t) :: total_ns = 0
      integer(c_int64_t) :: min_ns = 0
      integer(c_int64_t) :: max_ns = 0
   end type sp_region_stats

   interface
      function c_init(prefix, rank) bind(c, name="sp_init") result(status)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: prefix(*)
         integer(c_int), value :: rank
         integer(c_int) :: status
      end function c_init

      function c_finalize() bind(c, name="sp_finalize") result(status)
         import :: c_int
         integer(c_int) :: status
      end function c_finalize

      function c_flush() bind(c, name="sp_flush") result(status)
         import :: c_int
         integer(c_int) :: status
      end function c_flush

      function c_reset() bind(c, name="sp_reset") result(status)
         import :: c_int
         integer(c_int) :: status
      end function c_reset

      function c_region_at(name, file, line) bind(c, name="sp_region_at") result(region)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: name(*)
         character(kind=c_char), intent(in) :: file(*)
         integer(c_int), value :: line
         integer(c_int) :: region
      end function c_region_at

      function c_region(name) bind(c, name="sp_region") result(region)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: name(*)
         integer(c_int) :: region
      end function c_region

      subroutine c_begin(region) bind(c, name="sp_begin")
         import :: c_int
         integer(c_int), value :: region
      end subroutine c_begin

      subroutine c_end(region) bind(c, name="sp_end")
         import :: c_int
         integer(c_int), value :: region
      end subroutine c_end

      function c_end_status(region) bind(c, name="sp_end_status") result(status)
         import :: c_int
         integer(c_int), value :: region
         integer(c_int) :: status
      end function c_end_status

      function c_open_calls() bind(c, name="sp_open_calls") result(count)
         import :: c_int
         integer(c_int) :: count
      end function c_open_calls

      function c_num_calls(region) bind(c, name="sp_num_calls") result(calls)
         import :: c_int, c_int64_t
         integer(c_int), value :: region
         integer(c_int64_t) :: calls
      end function c_num_calls

      function c_now_ns() bind(c, name="sp_now_ns") result(now)
         import :: c_int64_t
         integer(c_int64_t) :: now
      end function c_now_ns

      function c_is_active() bind(c, name="sp_is_active") result(active)
         import :: c_int
         integer(c_int) :: active
      end function c_is_active

      function c_set_output_format(format) bind(c, name="sp_set_output_format") result(status)
         import :: c_int
         integer(c_int), value :: format
         integer(c_int) :: status
      end function c_set_output_format

      function c_set_thread_name(name) bind(c, name="sp_set_thread_name") result(status)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: name(*)
         integer(c_int) :: status
      end function c_set_thread_name

      function c_set_metadata(key, value) bind(c, name="sp_set_metadata") result(status)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: key(*)
         character(kind=c_char), intent(in) :: value(*)
         integer(c_int) :: status
      end function c_set_metadata

      function c_default_profiler() bind(c, name="sp_default_profiler") result(profiler)
         import :: c_ptr
         type(c_ptr) :: profiler
      end function c_default_profiler

      function c_region_stats(profiler, region, stats) bind(c, name="sp_profiler_get_region_stats") result(status)
         import :: c_int, c_ptr, sp_region_stats
         type(c_ptr), value :: profiler
         integer(c_int), value :: region
         type(sp_region_stats), intent(out) :: stats
         integer(c_int) :: status
      end function c_region_stats

      function c_num_regions(profiler) bind(c, name="sp_profiler_num_regions") result(count)
         import :: c_int, c_ptr
         type(c_ptr), value :: profiler
         integer(c_int) :: count
      end function c_num_regions

      function c_error_message(profiler) bind(c, name="sp_profiler_error_message") result(text)
         import :: c_ptr
         type(c_ptr), value :: profiler
         type(c_ptr) :: text
      end function c_error_message

      function c_output_path() bind(c, name="sp_output_path") result(path)
         import :: c_ptr
         type(c_ptr) :: path
      end function c_output_path

      pure function c_strlen(text) bind(c, name="strlen") result(length)
         import :: c_ptr, c_int64_t
         type(c_ptr), value :: text
         integer(c_int64_t) :: length
      end function c_strlen
   end interface

contains

   !> Start recording into <prefix>_rank<rank as five digits>.spt. `rank` is 0 unless it is given.
   subroutine sp_init(prefix, rank, stat, errmsg)
      character(len=*), intent(in) :: prefix
      integer, intent(in), optional :: rank
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(kind=c_char) :: text(max_prefix + 1)
      integer :: number, status

      number = 0
      if (present(rank)) number = rank
      if (len_trim(prefix) < 1 .or. len_trim(prefix) > max_prefix) then
         call tell(SP_ERR_INVALID_ARGUMENT, "sp_init: the prefix has 1 to 512 characters", stat, errmsg)
         return
      end if
      if (number < 0) then
         call tell(SP_ERR_INVALID_ARGUMENT, "sp_init: the rank is negative", stat, errmsg)
         return
      end if
      call to_c(prefix, text)
      status = c_init(text, int(number, c_int))
      if (status == SP_OK) status = c_set_output_format(int(SP_OUTPUT_TRACE, c_int))
      call tell_c(status, "sp_init", stat, errmsg)
   end subroutine sp_init

   !> The handle of a region, made at its first use; 0 where there is nothing to record into. Handles are 1, 2, ... and stay good
   !! as long as the program runs. `file` and `line` say where the region is; the first that say it win.
   function sp_region(name, file, line, stat, errmsg) result(id)
      character(len=*), intent(in) :: name
      character(len=*), intent(in), optional :: file
      integer, intent(in), optional :: line
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      integer :: id
      character(kind=c_char) :: text(SP_MAX_NAME + 1)
      character(kind=c_char) :: path(max_path + 1)
      integer :: number

      call to_c(name, text)
      if (present(file)) then
         number = -1
         if (present(line)) number = line
         call to_c(file, path)
         id = c_region_at(text, path, int(number, c_int)) + 1
      else
         id = c_region(text) + 1
      end if
      if (id > 0) then
         call tell(SP_OK, "", stat, errmsg)
      else
         call tell(SP_ERR_INACTIVE, "sp_region: nothing is being recorded", stat, errmsg)
      end if
   end function sp_region

   !> Enter a region.
   subroutine sp_begin(id, stat, errmsg)
      integer, intent(in) :: id
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call c_begin(int(id - 1, c_int))
      if (present(stat) .or. present(errmsg)) call tell_region(id, "sp_begin", stat, errmsg)
   end subroutine sp_begin

   !> Leave a region: its newest open call on this thread.
   subroutine sp_end(id, stat, errmsg)
      integer, intent(in) :: id
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      if (.not. (present(stat) .or. present(errmsg))) then
         call c_end(int(id - 1, c_int))
      else if (.not. is_region(id)) then
         call tell_region(id, "sp_end", stat, errmsg)
      else
         call tell_end(int(c_end_status(int(id - 1, c_int))), stat, errmsg)
      end if
   end subroutine sp_end

   !> Enter the region of this name. In a loop a handle is quicker.
   subroutine sp_begin_name(name, stat, errmsg)
      character(len=*), intent(in) :: name
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(kind=c_char) :: text(SP_MAX_NAME + 1)
      integer :: id

      call to_c(name, text)
      id = c_region(text) + 1
      call sp_begin(id, stat, errmsg)
   end subroutine sp_begin_name

   !> Leave the region of this name.
   subroutine sp_end_name(name, stat, errmsg)
      character(len=*), intent(in) :: name
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(kind=c_char) :: text(SP_MAX_NAME + 1)
      integer :: id

      call to_c(name, text)
      id = c_region(text) + 1
      call sp_end(id, stat, errmsg)
   end subroutine sp_end_name

   !> Times that a region was entered. Readable after sp_finalize.
   function sp_num_calls(id) result(calls)
      integer, intent(in) :: id
      integer(int64) :: calls

      calls = int(c_num_calls(int(id - 1, c_int)), int64)
   end function sp_num_calls

   !> Nanoseconds of the clock that calls are recorded with; -1 where there is none.
   function sp_now_ns() result(now)
      integer(int64) :: now

      now = int(c_now_ns(), int64)
   end function sp_now_ns

   !> Whether calls are recorded now.
   function sp_is_active() result(active)
      logical :: active

      active = c_is_active() /= 0
   end function sp_is_active

   !> Statistics of the completed calls of a region, also after it was finalized.
   subroutine sp_get_region_stats(id, stats, stat, errmsg)
      integer, intent(in) :: id
      type(sp_region_stats), intent(out) :: stats
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      if (.not. is_region(id)) then
         call tell_region(id, "sp_get_region_stats", stat, errmsg)
         return
      end if
      call tell_c(int(c_region_stats(c_default_profiler(), int(id - 1, c_int), stats)), "sp_get_region_stats", stat, errmsg)
   end subroutine sp_get_region_stats

   !> Put what is complete into the file, and go on.
   subroutine sp_flush(stat, errmsg)
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell_c(int(c_flush()), "sp_flush", stat, errmsg)
   end subroutine sp_flush

   !> Give up all calls, keep the regions. SP_ERR_OPEN_SCOPES while a region is open.
   subroutine sp_reset(stat, errmsg)
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell_c(int(c_reset()), "sp_reset", stat, errmsg)
   end subroutine sp_reset

   !> Write the file and stop. When that fails the regions go on recording, and the call can be repeated. SP_ERR_OPEN_SCOPES
   !! when this thread had a region open: the file is written.
   subroutine sp_finalize(stat, errmsg)
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      integer :: open, status

      open = c_open_calls()
      status = c_finalize()
      if (status == SP_OK .and. open > 0) then
         call tell(SP_ERR_OPEN_SCOPES, "sp_finalize: a region was still open", stat, errmsg)
      else
         call tell_c(status, "sp_finalize", stat, errmsg)
      end if
   end subroutine sp_finalize

   !> Choose what is written, SP_OUTPUT_TRACE or SP_OUTPUT_HDF5, after sp_init and before it is written.
   subroutine sp_set_output_format(format, stat, errmsg)
      integer, intent(in) :: format
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell_c(int(c_set_output_format(int(format, c_int))), "sp_set_output_format", stat, errmsg)
   end subroutine sp_set_output_format

   !> Name the calling thread in the run.
   subroutine sp_set_thread_name(name, stat, errmsg)
      character(len=*), intent(in) :: name
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(kind=c_char) :: text(SP_MAX_NAME + 1)

      call to_c(name, text)
      call tell_c(int(c_set_thread_name(text)), "sp_set_thread_name", stat, errmsg)
   end subroutine sp_set_thread_name

   !> Metadata of the run; a key that is there is replaced.
   subroutine sp_set_metadata(key, value, stat, errmsg)
      character(len=*), intent(in) :: key
      character(len=*), intent(in) :: value
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(kind=c_char) :: name(SP_MAX_NAME + 1)
      character(kind=c_char) :: text(max_path + 1)

      call to_c(key, name)
      call to_c(value, text)
      call tell_c(int(c_set_metadata(name, text)), "sp_set_metadata", stat, errmsg)
   end subroutine sp_set_metadata

   !> The file that is written; empty before sp_init, and when Python writes it.
   function sp_output_path() result(path)
      character(len=:), allocatable :: path

      path = from_c(c_output_path())
   end function sp_output_path

   ! -- texts ----------------------------------------------------------------------------------------------------------

   !> `text` without the blanks at its end, cut where there is no room, and ended as C wants it.
   pure subroutine to_c(text, out)
      character(len=*), intent(in) :: text
      character(kind=c_char), intent(out) :: out(:)
      integer :: i, length

      length = min(len_trim(text), size(out) - 1)
      ! A character of several bytes is left out whole.
      do while (length > 0 .and. length < len_trim(text))
         if (iand(ichar(text(length + 1:length + 1)), 192) /= 128) exit
         length = length - 1
      end do
      do i = 1, length
         out(i) = text(i:i)
      end do
      out(length + 1) = c_null_char
   end subroutine to_c

   function from_c(text) result(copy)
      type(c_ptr), intent(in) :: text
      character(len=:), allocatable :: copy
      character(kind=c_char), pointer :: characters(:)
      integer :: i, length

      if (.not. c_associated(text)) then
         copy = ""
         return
      end if
      length = int(c_strlen(text))
      call c_f_pointer(text, characters, [length])
      allocate (character(len=length) :: copy)
      do i = 1, length
         copy(i:i) = characters(i)
      end do
   end function from_c

   ! -- outcomes -------------------------------------------------------------------------------------------------------

   function is_region(id) result(known)
      integer, intent(in) :: id
      logical :: known

      known = id >= 1
      if (known) known = id <= c_num_regions(c_default_profiler())
   end function is_region

   subroutine tell_region(id, what, stat, errmsg)
      integer, intent(in) :: id
      character(len=*), intent(in) :: what
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      if (.not. sp_is_active()) then
         call tell(SP_ERR_INACTIVE, what // ": nothing is being recorded", stat, errmsg)
      else if (.not. is_region(id)) then
         call tell(SP_ERR_INVALID_ARGUMENT, what // ": no region has this handle", stat, errmsg)
      else
         call tell(SP_OK, "", stat, errmsg)
      end if
   end subroutine tell_region

   subroutine tell_end(status, stat, errmsg)
      integer, intent(in) :: status
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      select case (status)
      case (SP_OK)
         call tell(SP_OK, "", stat, errmsg)
      case (SP_ERR_INACTIVE)
         call tell(SP_ERR_INACTIVE, "sp_end: nothing is being recorded", stat, errmsg)
      case default
         call tell(SP_ERR_UNMATCHED_END, "sp_end: the region is not open", stat, errmsg)
      end select
   end subroutine tell_end

   !> A status of the C functions, with what there is to say about it.
   subroutine tell_c(status, what, stat, errmsg)
      integer, intent(in) :: status
      character(len=*), intent(in) :: what
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      integer :: code

      code = status
      if (code > SP_ERR_OPEN_SCOPES) code = SP_ERR_INVALID_ARGUMENT
      if (code == SP_OK) then
         call tell(SP_OK, "", stat, errmsg)
      else if (code == SP_ERR_INACTIVE) then
         call tell(code, what // ": nothing is being recorded", stat, errmsg)
      else
         call tell(code, what // ": " // from_c(c_error_message(c_default_profiler())), stat, errmsg)
      end if
   end subroutine tell_c

   subroutine tell(code, message, stat, errmsg)
      integer, intent(in) :: code
      character(len=*), intent(in) :: message
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      if (present(stat)) stat = code
      if (present(errmsg)) errmsg = message
      if (code == SP_OK .or. code == SP_ERR_INACTIVE .or. present(stat) .or. present(errmsg)) return
      write (error_unit, "(2a)") "scope_profiler: ", message
   end subroutine tell

end module scope_profiler
